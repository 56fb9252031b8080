"""The graph IR: modules, graphs, nodes and values with use lists; GraphDef and text in and out."""

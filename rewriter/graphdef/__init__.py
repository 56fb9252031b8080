"""GraphDef protos: reads one into a GraphView, inlines calls, applies a plan, and outlines the calls again."""

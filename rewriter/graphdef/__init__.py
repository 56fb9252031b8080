"""GraphDef protos in and out: read to a GraphView, inline calls, apply a plan, outline the calls again."""

"""The vendor's surface: faces `npu_bridge` and `hccl`, installed by these names, and `ops` behind them."""

"""sklearn.utils.linear_assignment_, which scikit-learn 0.23 removed."""

from npu_shim.compat.python.sklearn_functions import linear_assignment

__all__ = ["linear_assignment"]

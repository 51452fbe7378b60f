"""Names for the five planes of the array in which stacked experts write what they predict.

The array has the shape ``(5, n_experts, n_targets)``:

* `LOCATION`: where the expert expects the target;
* `STD`: the standard deviation that the expert itself gives, infinite where it knows nothing yet;
* `SCALE`: scale of the Student-t that the stack makes of it;
* `DOF`: degrees of freedom of that Student-t;
* `WEIGHT`: weight of the expert in the mixture; the weights of a target sum to one.

Experts write the first two, the stack the others.
"""

from __future__ import annotations

__all__ = ["DOF", "LOCATION", "SCALE", "STD", "WEIGHT"]

LOCATION, STD, SCALE, DOF, WEIGHT = range(5)

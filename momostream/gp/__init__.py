"""Parts of a Gaussian-process expert: covariance, factor, scaling, cuts, tuning."""

from __future__ import annotations

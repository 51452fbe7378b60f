"""Tables about models on the terminal."""

from __future__ import annotations

import numpy as np

from momostream.show import inspection
from momostream.show.outline import Box, named


def test_inspection_has_room_for_many_columns():
    import pandas as pd

    table = inspection._table("wide", pd.DataFrame(np.zeros((2, 30))))
    assert len(table.columns) == inspection.MAX_COLUMNS + 1 and "18 more" in str(table.caption)


def test_a_name_of_two_lines_in_a_figure_is_one_on_the_terminal():
    box = Box("gate", named("generator_temperature", 16), "wind speed of\nthe met mast")
    assert str(inspection._branch(box).label) == "wind speed of the met mast: generator_temperature"

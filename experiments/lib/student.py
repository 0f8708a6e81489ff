"""Student's t without SciPy, so that tables need only Python."""

T_975 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
         2.101, 2.093, 2.086]  # by degrees of freedom from 1


def t_975(degrees):
    """Half the width of a 95% interval in standard errors; for more than 20 degrees that of 20, which is a little too wide."""
    return T_975[min(degrees, len(T_975)) - 1]

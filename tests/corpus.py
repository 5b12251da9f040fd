"""Functions with every kind of Python statement; each takes a tensor and traces without a graph break."""

import contextlib


def straight(x):
    y = x + 1
    z = (
        y
        * 2
    )
    return z


def branches(x):
    if x.ndim == 1:
        y = x + 1
    elif x.ndim == 2:
        y = x + 2
    else:
        y = x + 3
    return y


def loops(x):
    for i in range(3):
        if i == 1:
            continue
        x = x + i
    else:
        x = x * 2
    n = 0
    while n < 2:
        n += 1
        x = x + n
    while True:
        x = x + 1
        if n:
            break
    return x


def one_statement_loop(x):
    n = 0
    while n < 3:
        n += 1
    for i in range(n): x = x + i
    return x


def tries(x):
    for i in range(2):
        try:
            if i:
                raise ValueError(i)
            x = x + 1
        except ValueError:
            x = x + 2
        else:
            x = x + 3
        finally:
            x = x * 2
    return x


def withs(x):
    with contextlib.nullcontext() as a, contextlib.nullcontext(
        2
    ) as b:
        x = x + b
    with contextlib.suppress(ValueError):
        x = x + 1
    return x


def comprehensions(x):
    y = [
        x + i
        for i in range(3)
        if i
    ]
    z = {k: v for k, v in enumerate(y)}
    return sum(y) + sum(
        v
        for v in z.values()
    )


def inner_functions(x):
    def add(y, n=1):
        """Add."""
        z = y + n
        return z

    double = lambda y: y * 2
    return add(add(x)) + double(x)


def generators(x):
    def each(n):
        for i in range(n):
            got = i + 1
            yield x + got

    total = x
    for part in each(3):
        total = total + part
    return total


def several_on_a_line(x):
    y = x + 1; z = y * 2
    if x.ndim: z = z + 1
    return z


def matches(x):
    match x.ndim:
        case 0:
            y = x
        case 1 | 2:
            y = x + 1
        case _:
            y = x + 2
    return y


def asserts(x):
    assert (
        x.ndim
        == 1
    ), "one dim"
    del_me = x + 1
    del del_me
    x += 1
    return x


CORPUS = [
    straight,
    branches,
    loops,
    one_statement_loop,
    tries,
    withs,
    comprehensions,
    inner_functions,
    generators,
    several_on_a_line,
    matches,
    asserts,
]

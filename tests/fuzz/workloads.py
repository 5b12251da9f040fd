"""Programs that run much of the standard library and of torch, and return a value to compare."""

from __future__ import annotations

import argparse
import ast
import base64
import bisect
import calendar
import collections
import configparser
import contextlib
import copy
import csv
import dataclasses
import difflib
import email
import enum
import fractions
import functools
import heapq
import html.parser
import inspect
import io
import ipaddress
import json
import pprint
import random
import re
import shlex
import statistics
import string
import textwrap
import tokenize
import types
import urllib.parse
import xml.etree.ElementTree

TEXT = textwrap.dedent(
    '''
    import os

    def f(x, *args, key=None, **rest):
        """Doc."""
        with open(x) as a, open(key) as b:
            for line in a:
                yield line if line else [y for y in b if y]
        try:
            return (yield from args)
        except (ValueError, KeyError) as error:
            raise RuntimeError(f"{error!r:>10}") from error
        finally:
            del rest

    class C:
        x: int = 3
        async def g(self):
            async with self as s:
                return await s
    '''
)


def texts():
    words = TEXT.split()
    return [
        textwrap.fill(TEXT, 30),
        textwrap.shorten(TEXT, 40),
        list(difflib.unified_diff(words, sorted(words))),
        difflib.get_close_matches("retrun", words),
        string.Template("$a ${b}").substitute(a=1, b=2),
        shlex.split("a 'b c' \"d\" # e", comments=True),
        pprint.pformat({"a": list(range(40)), "b": {"c": words}}, width=30),
        [(t.type, t.string) for t in tokenize.generate_tokens(io.StringIO(TEXT).readline)],
        ast.unparse(ast.parse(TEXT)),
        ast.dump(ast.parse("a + b if c else [d for e in f]"), indent=1),
    ]


def data():
    table = io.StringIO()
    writer = csv.DictWriter(table, ["a", "b"])
    writer.writeheader()
    writer.writerows([{"a": i, "b": f'"{i},'} for i in range(5)])
    parser = configparser.ConfigParser()
    parser.read_string("[a]\nx = 1\ny = %(x)s2\n[b]\nz: no\n")
    tree = xml.etree.ElementTree.fromstring("<a><b c='d'>e</b><b/></a>")
    return [
        list(csv.DictReader(io.StringIO(table.getvalue()))),
        {name: dict(parser[name]) for name in parser.sections()},
        parser.getboolean("b", "z"),
        json.dumps({"a": [1, 2.5, None, True, {"b": "ü"}]}, indent=2, sort_keys=True),
        json.JSONDecoder().decode('{"a": [1, 2.5, null, "\\u00fc"]}'),
        json.encoder._make_iterencode.__name__,
        "".join(json.JSONEncoder(indent=1).iterencode({"a": [1, {"b": []}]})),
        [each.attrib for each in tree.iter("b")],
        xml.etree.ElementTree.tostring(tree),
        urllib.parse.urlsplit("http://u:p@h:80/a;b?c=d&e=f#g")._asdict(),
        urllib.parse.urlencode({"a": [1, "ü"]}, doseq=True),
        urllib.parse.parse_qs("a=1&a=2&b=%20"),
        urllib.parse.urljoin("http://a/b/c", "../d"),
        base64.b85encode(b"hello"),
        base64.a85decode(base64.a85encode(b"hello")),
        str(email.message_from_string("From: a\nSubject: =?utf-8?q?=C3=BC?=\n\nhi")),
        list(ipaddress.ip_network("10.0.0.0/29").hosts()),
        str(ipaddress.ip_address("::1").exploded),
    ]


def numbers():
    chance = random.Random(3)
    values = [chance.gauss(0, 1) for _ in range(20)]
    heap = list(values)
    heapq.heapify(heap)
    return [
        values,
        chance.sample(range(100), 5),
        chance.choices("abc", k=5),
        chance.betavariate(1, 2),
        chance.triangular(0, 1),
        statistics.median(values),
        statistics.stdev(values),
        statistics.quantiles(values),
        statistics.NormalDist.from_samples(values).overlap(statistics.NormalDist()),
        statistics.linear_regression(values, values[::-1]),
        fractions.Fraction("3/7") + fractions.Fraction(0.25) ** 2,
        [heapq.heappop(heap) for _ in range(5)],
        heapq.nsmallest(3, values),
        list(heapq.merge([1, 4], [2, 3])),
        bisect.bisect_left(sorted(values), 0),
        calendar.TextCalendar().formatmonth(2024, 2),
        calendar.monthrange(2024, 2),
        re.sub(r"(?P<a>\w+)|(\d{2,3}?)[^x-z]", lambda m: m[0][::-1], TEXT),
        re.compile(r"(?x) a+ (?=b) | [\d\s]*? (?:c|d){1,2} ").pattern,
    ]


class Color(enum.Flag):
    RED = enum.auto()
    BLUE = enum.auto()


def objects():
    @dataclasses.dataclass(order=True, frozen=True)
    class Point:
        x: int
        y: list = dataclasses.field(default_factory=list, compare=False)

    @contextlib.contextmanager
    def around(log):
        log.append("in")
        try:
            yield log
        finally:
            log.append("out")

    @functools.singledispatch
    def kind(value):
        return "any"

    kind.register(int, lambda value: "int")
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(around(log))
        stack.callback(log.append, "called")
    with contextlib.suppress(ZeroDivisionError), contextlib.redirect_stdout(io.StringIO()):
        print(1 / 0)
    counter = collections.Counter("mississippi")
    chain = collections.ChainMap({"a": 1}, {"b": 2})
    Pair = collections.namedtuple("Pair", "a b", defaults=[2])
    parser = argparse.ArgumentParser(prog="p")
    parser.add_argument("--n", type=int, default=3, help="how many")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("run").add_argument("files", nargs="*")

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            log.append((tag, attrs))

    Parser().feed("<a href='b'>c<br/></a><!-- d -->")
    return [
        log,
        sorted([Point(2), Point(1)]),
        dataclasses.asdict(Point(1, [2])),
        dataclasses.replace(Point(1), x=5),
        [kind(1), kind("a")],
        counter.most_common(2),
        counter + counter - collections.Counter("miss"),
        dict(chain.new_child({"c": 3})),
        Pair(1)._replace(b=5),
        copy.deepcopy({"a": [1, {2: (3,)}]}),
        str(inspect.signature(argparse.ArgumentParser.add_argument)),
        inspect.getsource(types.DynamicClassAttribute)[:50],
        parser.parse_args(["--n", "4", "run", "a", "b"]),
        parser.format_help(),
        Color.RED | Color.BLUE,
        ~Color.RED,
        Color(3).name,
        functools.reduce(lambda a, b: a + b, range(5)),
    ]


def with_torch():
    import torch
    from torch.utils import _pytree as pytree

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Dropout(0.1), torch.nn.GELU(), torch.nn.Linear(4, 2)
    )
    encoder = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    lstm = torch.nn.LSTM(4, 3, num_layers=2, bidirectional=True)
    optimizers = [
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False),
        torch.optim.AdamW(net.parameters(), lr=0.01, foreach=False),
    ]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizers[0], 0.1, total_steps=5)
    x = torch.randn(3, 4)
    out = []
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(net(x), torch.tensor([0, 1, 0]))
        loss.backward()
        out.append(loss.item())
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        schedule.step()
    leaves, spec = pytree.tree_flatten({"a": [x, (1, None)], "b": collections.OrderedDict(c=2)})
    dist = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), torch.ones(2)), 1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=2, shuffle=True)
    return [
        out,
        encoder(x[None]).sum().item(),
        lstm(x[:, None])[0].sum().item(),
        pytree.tree_unflatten(leaves, spec)["a"][1],
        dist.log_prob(torch.ones(2)).item(),
        torch.distributions.kl_divergence(dist, dist).item(),
        [len(batch[0]) for batch in loader],
        repr(net),
        sorted(net.state_dict()),
        repr(x),
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0).item(),
        str(torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))),
    ]


STANDARD = (texts, data, numbers, objects)

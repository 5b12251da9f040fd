import time, torch, copy, sys, statistics

sys.path.insert(0, "benchmarks")
from torch import nn
from dynx import cudagraphs
import dynx.cudagraphs._pair as P, dynx.cudagraphs._recording as R


class Loss(nn.Module):
    def __init__(s, m):
        super().__init__()
        s.m = m

    def forward(s, x):
        return s.m(x).float().square().mean()


acc = {}


def wrap(obj, name, label):
    f = getattr(obj, name)

    def g(*a, **k):
        t = time.perf_counter()
        r = f(*a, **k)
        acc.setdefault(label, []).append(time.perf_counter() - t)
        return r

    setattr(obj, name, g)


torch.manual_seed(0)
x = torch.randn(16, 256, device="cuda", dtype=torch.half)


def mk():
    return Loss(nn.Sequential(*(nn.Linear(256, 256) for _ in range(20))).half().cuda()).train()


wrap(P.Pair, "run", "pair.run")
wrap(P.Pair, "replay_forward", "pair.fw")
wrap(P.Pair, "replay_backward", "pair.bw")
wrap(P.Pair, "_accumulate", "pair.acc")
import dynx.cudagraphs._runner as RU

wrap(RU.Runner, "__call__", "runner")
import dynx._torch.foreach as FE

wrap(FE, "copies_of", "copies_of")


def run(name, m, f):
    params = list(m.parameters())
    for _ in range(6):
        for p in params:
            p.grad = None
        f(x).backward()
    torch.cuda.synchronize()
    acc.clear()
    T = [[], [], [], []]
    for _ in range(60):
        t0 = time.perf_counter()
        for p in params:
            p.grad = None
        t1 = time.perf_counter()
        l = f(x)
        t2 = time.perf_counter()
        l.backward()
        t3 = time.perf_counter()
        del l
        t4 = time.perf_counter()
        for a, b in zip(T, (t1 - t0, t2 - t1, t3 - t2, t4 - t3)):
            a.append(b)
        torch.cuda.synchronize()
    print(
        name,
        "zero %.0f fw %.0f bw %.0f del %.0f" % tuple(statistics.median(a) * 1e6 for a in T),
        {k: "%.0f x%.1f" % (statistics.median(v) * 1e6, len(v) / 60) for k, v in acc.items()},
    )


m = mk()
run("eager", m, m)
m = mk()
torch.cuda.make_graphed_callables(m, (x,))
run("torch graphed", m, m)
m = mk()
cudagraphs.graphed(m, (x,))
run("graphed", m, m)
m = mk()
cudagraphs.graphed(m, (x,), gradients="in_place")
run("in place", m, m)
m = mk()
run("compiled clone", m, torch.compile(m, backend="dynx_cudagraphs"))
m = mk()
run("compiled in place", m, torch.compile(m, backend="dynx_cudagraphs", options={"gradients": "in_place"}))
m = mk()
gs = [torch.randn_like(p) for p in m.parameters()]
import timeit


def t(n, f, k=200):
    f()
    torch.cuda.synchronize()
    b = min(timeit.repeat(f, number=k, repeat=3)) / k * 1e6
    torch.cuda.synchronize()
    print(n, "%.1f" % b)


ps = list(m.parameters())
t("foreach_mul", lambda: torch._foreach_mul(gs, 1), 50)


def copyall():
    out = [torch.empty_like(g) for g in gs]
    torch._foreach_copy_(out, gs)
    return out


t("empty_like+foreach_copy", copyall, 50)
flat = torch.empty(sum(g.numel() for g in gs), device="cuda", dtype=torch.half)
views = []
o = 0
for g in gs:
    views.append(flat[o : o + g.numel()].view_as(g))
    o += g.numel()


def one():
    f = flat.clone()
    return [f.as_strided(v.size(), v.stride(), v.storage_offset()) for v in views]


t("one clone + 40 as_strided", one, 50)


def split():
    f = flat.clone()
    return torch._utils._unflatten_dense_tensors(f, gs)


t("one clone + unflatten", split, 50)
t("foreach clone via torch._foreach_clone?", lambda: getattr(torch, "_foreach_clone", lambda g: None)(gs), 50)


def setg():
    for p, g in zip(ps, gs):
        p.grad = g


def none():
    for p in ps:
        p.grad = None


t("set grads", lambda: (setg(), none()))
t("none", none)
t("read", lambda: [p.grad for p in ps])
z = torch.zeros((), requires_grad=True)


class F(torch.autograd.Function):
    @staticmethod
    def forward(c, a):
        return x.new_zeros(())

    @staticmethod
    def backward(c, g):
        return None


t("function+backward", lambda: F.apply(z).backward())
zc = torch.zeros((), requires_grad=True, device="cuda")


class G(torch.autograd.Function):
    @staticmethod
    def forward(c, a):
        return x.new_zeros(())

    @staticmethod
    def backward(c, g):
        return g


t("function+backward cuda anchor", lambda: G.apply(zc).backward())
one_ = torch.ones((), device="cuda", dtype=torch.half)
t("function+backward given grad", lambda: F.apply(z).backward(one_))

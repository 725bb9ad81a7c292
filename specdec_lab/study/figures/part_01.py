"""Figures of notebook 01: bytes of a step, the roofline, what a row costs, and a step by batch."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from specdec_lab.study.figures.style import METHODS, new_figure
from specdec_lab.study.roofline import DEVICES, Device, step_work

THEORY = METHODS["theory"].color
PALE = "#777777"
PARTS = {  # colour and label of what a step reads
    "attention": ("#80b1d3", "attention weights"),
    "mlp": ("#3f6e9a", "MLP weights"),
    "head": ("#b3cde3", "head"),
    "kv": ("#fdb462", "keys and values"),
}
PRODUCTS = {  # look and name of every product that is measured
    "stock": ({"color": "#8c510a", "marker": "o"}, "stock, float32"),
    "packed": ({"color": "#01665e", "marker": "s"}, "prepacked, float32"),
    "bf16": ({"color": "#762a83", "marker": "^"}, "stock, bf16"),
}
ROWS = tuple(range(1, 34))  # of the slider's picture


def bytes_of_a_step(data: dict) -> Figure:
    """What one forward reads, a bar per context.

    ``data``: ``contexts`` and, per part of `PARTS`, a list of megabytes ``megabytes[part]``.
    """
    figure = new_figure(7.6, 3.2)
    figure.subplots_adjust(left=0.17, right=0.97, top=0.8)
    axes = figure.subplots()
    places, left = range(len(data["contexts"])), [0.0] * len(data["contexts"])
    for part, (color, label) in PARTS.items():
        widths = data["megabytes"][part]
        axes.barh(places, widths, left=left, color=color, edgecolor="white", label=label)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(places, [f"{n:,} tokens\nof context" for n in data["contexts"]])
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
    axes.set_xlabel("megabytes read for one step, bf16")
    axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(-0.02, 0.98), fontsize=9, borderpad=0)
    axes.set_title("The weights are read for every step, whatever it writes", pad=26)
    return figure


def roofline(data: dict) -> Figure:
    """A device's roof, and where forwards of several rows stand under it.

    ``data``: ``device``, ``bandwidth``, ``flops``, ``unit`` (a power of ten of FLOP/s and its
    name), ``points`` (``rows``, ``intensity``, and ``reached`` FLOP/s or none: on the roof).
    """
    device = Device(data["device"], data["bandwidth"], data["flops"])
    scale, unit = data["unit"]
    figure = new_figure(7, 4)
    axes = figure.subplots()
    right = 4 * max(device.ridge, *(point["intensity"] for point in data["points"]))
    places = [0.3, device.ridge, right]
    roof = [min(x * device.bandwidth, device.flops) / scale for x in places]
    axes.plot(places, roof, color=THEORY)
    axes.axvline(device.ridge, color=PALE, lw=1, ls=":")
    for point in data["points"]:
        _point(axes, device, point, scale)
    _logarithmic(axes)
    low = min(0.6 * roof[0], *(0.4 * y for line in axes.lines[2:] for y in line.get_ydata()))
    axes.set(xlim=(places[0], right), ylim=(low, 3 * roof[-1]))
    axes.set(xlabel="intensity, FLOP per byte read", ylabel=f"{unit} per second")
    axes.text(device.ridge, low * 1.2, f" ridge {device.ridge:.0f}", color=PALE, ha="left")
    axes.text(0.04, 0.9, "memory-bound", transform=axes.transAxes, color=PALE)
    axes.text(0.97, 0.9, "compute-bound", transform=axes.transAxes, color=PALE, ha="right")
    axes.set_title(data["title"])
    return figure


def row_cost(data: dict) -> Figure:
    """Left milliseconds of all products of a forward by its rows, right relative to one row.

    ``data``: what `bandwidth.measure_rows` returns.
    """
    figure = new_figure(9, 4.3)
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.24, top=0.9, wspace=0.22)
    for product, (look, label) in PRODUCTS.items():
        milliseconds = [1e3 * value for value in data["seconds"][product]]
        left.plot(data["rows"], milliseconds, **look, label=label, markersize=5)
        right.plot(data["rows"], data["cost"][product], **look, markersize=5)
    read = 1e3 * data["read_seconds"]
    left.axhline(read, ls="--", color=THEORY, lw=1.4, label="reading float32 once")
    computing = [2e3 * data["weights"] * n / data["flops"] for n in data["rows"]]
    left.plot(data["rows"], computing, ls=":", color=THEORY, lw=1.4, label="computing alone")
    left.set(xlabel="rows of one forward", ylabel="milliseconds", ylim=(0, None))
    figure.legend(*left.get_legend_handles_labels(), ncols=5, loc="lower center", fontsize=9)
    left.set_title("What the rows cost here", fontsize=11)
    _relative(right, data)
    return figure


def describe_row_cost(data: dict) -> str:
    """The picture in words: what five rows cost, by product."""
    place = data["rows"].index(5)
    costs = ", ".join(
        f"{label} {data['cost'][product][place]:.2f}" for product, (_, label) in PRODUCTS.items()
    )
    return f"Time against rows, and relative to one row. Five rows cost, in times one row: {costs}."


def step_times(data: dict) -> Figure:
    """Time of a step relative to one row a sequence, and the two bounds of any such curve.

    ``data``: ``rows``, ``cost``, ``ridge_rows`` (per sequence) and ``title``.
    """
    figure = new_figure(6.6, 3.8)
    axes = figure.subplots()
    rows = data["rows"]
    axes.axhline(1, ls="--", color=THEORY, lw=1.4)
    axes.plot(rows, rows, ls="--", color=THEORY, lw=1.4)
    axes.plot(rows, data["cost"], color="#01665e", lw=3)
    axes.text(rows[-1], 0.55, "further rows are free", ha="right", color=PALE, fontsize=10)
    axes.text(10, 9.3, "further rows cost as much as the first", color=PALE, fontsize=10)
    if rows[0] <= data["ridge_rows"] <= rows[-1]:
        axes.axvline(data["ridge_rows"], color=PALE, lw=1, ls=":")
        axes.text(data["ridge_rows"], 0.2, " ridge", color=PALE)
    axes.set(xlabel="rows per sequence (1 + k)", ylabel="time of a step, one row = 1")
    axes.set(xlim=(1, rows[-1]), ylim=(0, 10))
    axes.set_title(data["title"])
    return figure


def step_data(
    arch: object, device: str = "H100", batch: int = 1, context: int = 128, weights: float = 2.0
) -> dict:
    """Numbers of `step_times` for one setting of the sliders; ``weights`` is bytes a weight."""
    chip = DEVICES[device]

    def seconds(rows: int) -> float:
        return step_work(arch, rows, context, batch, weights).seconds(chip)

    return {
        "rows": list(ROWS),
        "cost": [seconds(rows) / seconds(1) for rows in ROWS],
        "ridge_rows": chip.ridge_rows(weights) / batch,
        "title": f"{chip.name}: {batch} × {context:,} tokens, {weights * 8:g}-bit weights",
    }


def describe_step(data: dict) -> str:
    """The picture in words: the setting, the cost of five and 17 rows, and the ridge."""
    five, many = (data["cost"][data["rows"].index(n)] for n in (5, 17))
    ridge = data["ridge_rows"]
    until = f"memory-bound up to {int(ridge)} rows a sequence"
    bound = until if ridge >= 1 else "compute-bound from the first row on"
    return (
        f"{data['title']}. k = 4: {five:.2f} times a plain step, k = 16: {many:.2f} times; "
        f"the products are {bound}."
    )


def _logarithmic(axes: Axes) -> None:
    """Both axes logarithmic, with plain numbers at 1, 2 and 5."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())


def _point(axes: Axes, device: Device, point: dict, scale: float) -> None:
    roof = min(point["intensity"] * device.bandwidth, device.flops)
    reached = point.get("reached") or roof
    axes.plot(point["intensity"], reached / scale, "o", color="#01665e", ms=9)
    word = "row" if point["rows"] == 1 else "rows"
    axes.annotate(
        f"{point['rows']:,} {word}",
        (point["intensity"], reached / scale),
        xytext=(9, -13),
        textcoords="offset points",
    )


def _relative(axes: Axes, data: dict) -> None:
    """Cost relative to one row, between "all rows are free" and "no row is free"."""
    top = 1.1 * max(max(data["cost"][product]) for product in PRODUCTS)
    axes.axhline(1, ls="--", color=THEORY, lw=1.4)
    axes.plot([1, top], [1, top], ls="--", color=THEORY, lw=1.4)
    axes.text(data["rows"][-1], 0.93, "free rows", ha="right", va="top", color=PALE, fontsize=10)
    axes.text(top, 0.99 * top, " no row free", va="top", color=PALE, fontsize=10)
    axes.set(xlabel="rows of one forward", ylabel="time, one row = 1", ylim=(0, top))
    axes.set_title("and in terms of one row", fontsize=11)


FIGURES = {
    "01_bytes": bytes_of_a_step,
    "01_roofline": roofline,
    "01_row_cost": row_cost,
    "01_roofline_here": roofline,
    "01_explore": step_times,
}

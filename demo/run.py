# SPDX-License-Identifier: Apache-2.0
"""`make demo`: trains Fashion-MNIST on emulated hosts with each row of rows.py, then a small transformer under AdamW
with the rows whose names begin with adamw-, and writes the report.

Environment:
    LINK=100mbit        rate of each rank's link, in both directions
    QUEUE=2m            bytes that the switch holds in front of each rank's link; 64k is a shallow one
    RANKS=4  SEEDS=1  EPOCHS=1
    STEPS=40            a job of 40 steps, if an epoch takes too long
    RUNS="a b"          rows of rows.py, or codec/strategy; all of its table if unset
    CARD=1              each host has a network card (card/docs/card.md), and the table is that of cards
    MODEL=hdc           INCEPTIONN's five layers of 500 instead of the demo's own model (`mlp`); fsdp: a transformer
                        under fully_shard, with rows fsdp-*
    TARGET=0.82         accuracy of the column "to 82%" (unset: 0.82 for one epoch, 0.86 for more)
    DATA=folder         MNIST-format files; Debian's Fashion-MNIST if unset
    OUT=demo/out        the folder of the results
"""

import os
import shlex
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "lab/hosts")]

import card_report  # noqa: E402
import hosts  # noqa: E402
import report  # noqa: E402
import report_page  # noqa: E402
import rows  # noqa: E402
from lab.study import idx  # noqa: E402
from lab.study.figures import machine, mean  # noqa: E402
from ranks import JobFailed, Ranks  # noqa: E402

DEFAULTS = {
    "LINK": "100mbit",
    "QUEUE": "2m",
    "RANKS": "4",
    "SEEDS": "1",
    "EPOCHS": "1",
    "STEPS": "0",  # 0: the steps of the epochs
    "DATA": idx.DEBIAN,
    "OUT": str(Path(__file__).with_name("out")),
    "RUNS": " ".join(row.name for row in (*rows.ROWS, *rows.ADAMW_ROWS)),
}
COMMAND = Path(__file__).resolve().parents[1] / "build/tithe"  # the command whose verb `card` is a network card
HEADERS = 1.046  # TCP/IP and Ethernet bytes over payload bytes, at 1500 bytes per packet
LOCAL_STEPS = {"images": 60, "text": 15, "sharded": 6}
TEXT_TARGET = 0.35  # accuracy of the next byte
START_SECONDS, EVALUATION_SECONDS = 4.0, 0.4  # of one run, for the estimate only


@dataclass
class Settings:
    link: str
    queue: int
    ranks: int
    seeds: int
    epochs: int
    steps: int  # 0: the steps of the epochs
    data: str
    out: Path
    target: float
    rows: list[rows.Row]
    card: str | None
    given: dict[str, str]

    @classmethod
    def from_environment(cls) -> "Settings":
        """Reads the settings from the environment variables of the module's docstring. ValueError for a wrong value."""
        given = {name: os.environ[name] for name in (*DEFAULTS, "TARGET", "CARD", "MODEL") if os.environ.get(name)}
        value = {**DEFAULTS, **given}
        if value.get("CARD", "") not in ("", "0", "1"):
            raise ValueError(f"CARD={value['CARD']}: 1, or nothing")
        card = str(COMMAND) if value.get("CARD") == "1" else None
        if card and "RUNS" not in given:
            value["RUNS"] = " ".join(row.name for row in rows.CARD_ROWS)
        if value.get("MODEL") == rows.FSDP and "RUNS" not in given:
            value["RUNS"] = " ".join(row.name for row in rows.FSDP_ROWS)
        value.setdefault("TARGET", "0.82" if value["EPOCHS"] == "1" else "0.86")
        for name in ("RANKS", "SEEDS", "EPOCHS"):
            if not value[name].isdigit() or int(value[name]) < 1:
                raise ValueError(f"{name}={value[name]}: a whole number from 1 on")
        if not value["STEPS"].isdigit():
            raise ValueError(f"STEPS={value['STEPS']}: a whole number")
        if not 1 < int(value["RANKS"]) <= 200:
            raise ValueError(f"RANKS={value['RANKS']}: 2 to 200")
        if rows.MODEL not in (*rows.MODELS, rows.FSDP):
            raise ValueError(f"MODEL={rows.MODEL}: one of {', '.join((*rows.MODELS, rows.FSDP))}")
        hosts.parse_rate(value["LINK"])
        return cls(
            link=value["LINK"],
            queue=hosts.parse_bytes(value["QUEUE"]),
            ranks=int(value["RANKS"]),
            seeds=int(value["SEEDS"]),
            epochs=int(value["EPOCHS"]),
            steps=int(value["STEPS"]),
            data=value["DATA"],
            out=Path(value["OUT"]),
            target=float(value["TARGET"]),
            rows=[rows.by_name(name) for name in value["RUNS"].split()],
            card=card,
            given=given,
        )

    def parts(self) -> "list[Settings]":
        """Returns one Settings per task, in the order of training."""
        parts = []
        for task, folder in (("images", "."), ("text", "adamw"), ("sharded", "fsdp")):
            if chosen := [row for row in self.rows if row.task == task]:
                target = self.target if task == "images" else TEXT_TARGET
                parts.append(replace(self, rows=chosen, out=self.out / folder if parts else self.out, target=target))
        return parts

    @property
    def task(self) -> str:
        return self.rows[0].task

    @property
    def servers(self) -> int:
        """Returns the number of additional hosts, for rows whose servers have hosts of their own."""
        return max((row.servers for row in self.rows), default=0)

    def command(self) -> str:
        shown = {name: text for name, text in self.given.items() if name not in ("OUT", "DATA")}
        return " ".join([*(f"{name}={shlex.quote(text)}" for name, text in shown.items()), "make demo"])


class Progress:
    """Shows progress: one live line on a terminal; otherwise a line every fifteen seconds."""

    def __init__(self):
        self.live = sys.stdout.isatty()
        self.last = 0.0

    def show(self, text: str) -> None:
        if self.live:
            print(f"\r\033[K{text}", end="", flush=True)
        elif time.monotonic() - self.last > 15:
            self.last = time.monotonic()
            print(text, flush=True)

    def close(self, text: str) -> None:
        print(f"\r\033[K{text}" if self.live else text, flush=True)


class Estimate:
    """Estimates the remaining seconds, from the times of the rows so far and a guess for the other rows."""

    def __init__(self, settings: Settings, rate_bits: float, parameters: int, local_step: float, steps: int):
        ring = 2 * (settings.ranks - 1) / settings.ranks * 4 * parameters * HEADERS * 8 / rate_bits
        fixed = START_SECONDS + EVALUATION_SECONDS * (9 + 3 * settings.epochs)
        self.run_seconds = {row.name: fixed + steps * (local_step + row.bytes_part * ring) for row in settings.rows}
        self.queue: list[str] = [row.name for row in settings.rows for _ in range(settings.seeds)]

    def finished(self, name: str, seconds: float) -> None:
        self.queue.remove(name)
        self.run_seconds[name] = seconds

    def left(self, name: str = "", part_done: float = 0.0) -> float:
        total = sum(self.run_seconds[other] for other in self.queue)
        return total - (part_done * self.run_seconds[name] if name else 0.0)


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(seconds, 0):.0f} s"


def train_all(settings: Settings, ranks: Ranks, details: dict) -> None:
    """Trains every row with every seed and appends the runs to `details`. A failed job is noted, and the next row
    follows."""
    progress, begin = Progress(), time.monotonic()
    baseline = {"images": rows.FP32, "text": rows.ADAMW_ROWS[-1], "sharded": rows.FSDP_ROWS[-1]}[settings.task]
    local = {
        "job": "local",
        "task": settings.task,
        "row": baseline.name,
        "seed": 0,
        "steps": min(LOCAL_STEPS[settings.task], settings.steps or LOCAL_STEPS[settings.task]),
    }
    local = ranks.run(local, world=settings.ranks)
    steps = local[0]["per_epoch"] * settings.epochs
    steps = min(settings.steps or steps, steps)
    details["parameters"] = local[0]["parameters"]
    details["local_step_seconds"] = mean([result["step_seconds"] for result in local])
    print(f"demo: a step without any communication takes {details['local_step_seconds']:.3f} s", flush=True)
    rate = hosts.parse_rate(settings.link) if ranks.hosts.link else 10e9
    estimate = Estimate(settings, rate, details["parameters"], details["local_step_seconds"], steps)
    print(
        f"demo: {len(settings.rows)} rows x {settings.seeds} seeds x {steps} steps,"
        f" about {minutes(estimate.left())} in all",
        flush=True,
    )
    total = len(estimate.queue)
    for row in settings.rows:
        for seed in range(settings.seeds):
            count = total - len(estimate.queue) + 1
            where = f"[{count}/{total}] {row.name:<14} seed {seed}"

            def on_event(rank, event, row=row, where=where):
                if event["event"] == "step":
                    step = event["step"]
                    epoch = min(1 + step * settings.epochs // event["steps"], settings.epochs)
                    progress.show(
                        f"{where}  epoch {epoch}/{settings.epochs}  step {step}/{event['steps']}"
                        f"  {event['seconds']:.3f} s/step  loss {event['loss']:.3f}"
                        f"  accuracy {event['accuracy']:.1%}"
                        f"  {minutes(estimate.left(row.name, step / event['steps']))} left"
                    )

            ranks.hosts.use_cards(row.card)
            started, cards = time.monotonic(), ranks.hosts.card_seconds()
            job = {
                "job": "train",
                "task": row.task,
                "row": row.name,
                "seed": seed,
                "epochs": settings.epochs,
                "steps": steps,
            }
            try:
                results = ranks.run(job, on_event, world=settings.ranks + row.servers)
            except JobFailed as trouble:
                progress.close(f"{where}  FAILED: {trouble}")
                details["failed"].append({"name": row.shown, "seed": seed, "why": str(trouble)})
            else:
                run = {**results[0], "name": row.shown, "kind": row.kind, "seed": seed}
                run["rounded_on_the_way"] = row.rounded_on_the_way
                del run["event"]
                for key in ("step_seconds", "bytes_per_step", "processor_seconds"):
                    run[key] = mean([result[key] for result in results[: settings.ranks]])
                run["busiest_bytes_per_step"] = max(result["bytes_per_step"] for result in results)
                run["server_seconds"] = sum(result["processor_seconds"] for result in results[settings.ranks :])
                run["card_seconds"] = (ranks.hosts.card_seconds() - cards) / steps
                details["runs"].append(run)
                progress.close(
                    f"{where}  {run['step_seconds']:.3f} s/step  {run['bytes_per_step'] / 1e6:.3f} MB/step"
                    f"  accuracy {run['accuracy']:.2%}"
                    + ("" if run["identical"] else f"  RANKS DIFFER in their parameters, by {run['apart']:.1e}")
                )
            estimate.finished(row.name, time.monotonic() - started)
            details["wall_seconds"] = time.monotonic() - begin
            report.write_json(settings.out, details)


def details_of(settings: Settings, shaped: bool, notes: list[str]) -> dict:
    return {
        "machine": machine(),
        "command": settings.command(),
        "ranks": settings.ranks,
        "link": settings.link if shaped else "unshaped",
        "seeds": settings.seeds,
        "epochs": settings.epochs,
        "steps": settings.steps,
        "target": settings.target,
        "card": bool(settings.card),
        "task": settings.task,
        "layers": list(rows.LAYERS),
        "notes": notes,
        "runs": [],
        "failed": [],
    }


def inside(settings: Settings, shaped: bool) -> int:
    """Runs the whole demo, in the namespaces that `hosts.enter` made (or outside, unshaped)."""
    count = settings.ranks + settings.servers
    place = hosts.Hosts(count, settings.link if shaped else None, settings.queue, settings.card)
    place.build()
    settings.out.mkdir(parents=True, exist_ok=True)
    for log in (settings.out / "logs").glob("rank*.log"):
        log.unlink()
    ranks = Ranks(place, settings.data, settings.out / "logs")
    measured, notes, parts = [], list(place.notes), []
    try:
        print(f"demo: starting {place.ranks} ranks (torch and data)", flush=True)
        ranks.start()
        if shaped:
            rate = hosts.parse_rate(settings.link)
            measured = ranks.measure_links(rate)
            shown = ", ".join(f"{mbit:.1f}" for mbit in measured)
            print(f"demo: LINK={settings.link}; all links at once carry {shown} Mbit/s", flush=True)
            if max(measured) > 1.05 * rate / 1e6:
                raise RuntimeError("a link is faster than it should be: nothing would be shown")
            if min(measured) < 0.85 * rate / 1e6:
                notes.append("this machine does not carry the whole rate on all links at once")
                print(f"demo: {notes[-1]}", flush=True)
        for part in settings.parts():
            details = details_of(part, shaped, notes) | ({"link_mbit": measured} if shaped else {})
            part.out.mkdir(parents=True, exist_ok=True)
            train_all(part, ranks, details)
            parts.append((part, details))
            report_page.write_all(part.out, details, card_report.section(details))
            print(card_report.table(details) if settings.card else report.table(details), flush=True)
    except KeyboardInterrupt:
        print("\ndemo: stopped", flush=True)
        return 130
    except RuntimeError as trouble:
        print(f"demo: {trouble}", file=sys.stderr)
        return 1
    finally:
        ranks.stop()
    if len(parts) > 1:
        (first, details), *others = parts
        report_page.write_all(first.out, details, "".join(report_page.section(part.out, of) for part, of in others))
    print(f"\ndemo: {settings.out}/results.json, {settings.out}/report.html", flush=True)
    return 1 if any(details["failed"] for _, details in parts) else 0


def main() -> int:
    try:
        settings = Settings.from_environment()
        idx.load(settings.data)
    except (ValueError, FileNotFoundError) as trouble:
        print(f"demo: {trouble}", file=sys.stderr)
        return 2
    if settings.card and (os.geteuid() != 0 or not COMMAND.exists()):
        print(f"demo: CARD=1 takes root, for TAP interfaces, and {COMMAND} (make build)", file=sys.stderr)
        return 2
    if sys.argv[1:] == ["inside"]:
        return inside(settings, shaped=True)
    try:
        hosts.unshare_command()
    except RuntimeError as why:
        if settings.card:
            print(f"demo: CARD=1 takes network namespaces, and there are none here ({why})", file=sys.stderr)
            return 2
        print(
            f"demo: no network namespaces here ({why}).\n"
            "demo: running UNSHAPED on the loopback interface: LINK has no effect, bytes are still counted"
        )
        return inside(settings, shaped=False)
    return hosts.enter([sys.executable, os.path.abspath(__file__), "inside"])


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Which settings the study looks at: of every codec the default, with the feedback that suits it, and one other that
sends about a quarter of the bytes, found by trying, so a new codec needs no line here; of codecs without bias also the
default as published, without feedback."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import tithe

# The feedback of a codec's publication, where the spec's default is another one.
PUBLISHED_FEEDBACK = {
    "dgc": "feedback=momentum,mu={momentum}",  # momentum correction (Lin et al. 2018)
}
RANKS = 4  # of the study
AIM = 1 / 4  # of the default setting's bytes
AT_MOST = 0.8  # a setting that saves less is not another one


def spec(name: str, *settings: str) -> str:
    given = ",".join(filter(None, settings))
    return tithe.check_spec(f"{name}:{given}" if given else name)


def feedbacks(codec: dict, momentum: float) -> tuple[str, str]:
    """What this codec is to be fed back with, and what a reader would try instead."""
    if codec["lossless"]:
        return "", ""
    if codec["name"] in PUBLISHED_FEEDBACK:
        return PUBLISHED_FEEDBACK[codec["name"]].format(momentum=momentum), ""
    return "", "feedback=none"


def bytes_of(text: str, gradient: np.ndarray) -> int | None:
    """Sent by one of RANKS in one round; None if these settings do not exist, or not for as many ranks."""

    def exchange(session: tithe.Session) -> int:
        with session:
            session.wait(session.sync({"g": gradient.copy()}))
            session.commit()
            return session.stats()["bytes_sent"]

    try:
        sessions = tithe.Session.loop(RANKS, codec=text, strategy="gather", min_values=1, lanes=0)
        with ThreadPoolExecutor(RANKS) as threads:
            return list(threads.map(exchange, sessions))[0]
    except (ValueError, tithe.Error):  # the first rank to refuse leaves; others may hear of that first
        return None


def numbers(codec: dict) -> list[str]:
    """The default settings with one number changed."""
    out = []
    for p in codec["params"]:
        if "choices" in p:
            continue
        whole = p["default"].is_integer() and p["high"] > 1
        values = [p["default"] * factor for factor in (1 / 4, 1 / 2, 2, 4) if p["default"] != 0]
        out += [f"{p['name']}={v:g}" for v in values if p["low"] <= v <= p["high"] and (v.is_integer() or not whole)]
    return out


def words(codec: dict) -> list[str]:
    """The default settings with one word changed, but for `mode`: other people's bytes say nothing new."""
    named = [(p, choice) for p in codec["params"] if p["name"] != "mode" for choice in p.get("choices", ())]
    return [f"{p['name']}={choice}" for p, choice in named if choice != p["default"]]


def settings_of(codec: dict, gradient: np.ndarray, momentum: float) -> list[str]:
    name, (feedback, instead) = codec["name"], feedbacks(codec, momentum)
    out = [spec(name, feedback), _other_setting(codec, gradient, feedback)]
    if out[1] is None or codec["unbiased"]:
        out.append(instead and spec(name, instead))
    return [text for text in out if text]


def _other_setting(codec: dict, gradient: np.ndarray, feedback: str) -> str | None:
    name = codec["name"]
    first = spec(name, feedback)
    usual = bytes_of(first, gradient)
    if usual is None:
        return None
    for settings in (numbers(codec), words(codec)):
        tried = [(bytes_of(f"{name}:{setting}", gradient), setting) for setting in settings]
        smaller = [(sent, setting) for sent, setting in tried if sent and sent < AT_MOST * usual]
        if smaller:
            _, setting = min(smaller, key=lambda pair: abs(math.log(pair[0] / usual / AIM)))
            return spec(name, setting, feedback)
    return next((spec(name, word, feedback) for word in words(codec) if _serves(name, word, feedback)), None)


def _serves(name: str, *settings: str) -> bool:
    """Whether the codec takes these settings: feedback is refused with settings under which residuals grow."""
    try:
        spec(name, *settings)
    except ValueError:
        return False
    return True

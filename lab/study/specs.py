# SPDX-License-Identifier: Apache-2.0
"""The settings of the study: of every codec the default, with the feedback that suits it, and one other setting that
sends about a quarter of the bytes. The second one is found by trial, so a new codec needs no line here. Of codecs
without bias also the default as published, without feedback."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import tithe

# The feedback of a codec's publication, if it differs from the spec's default.
PUBLISHED_FEEDBACK = {
    "dgc": "feedback=momentum,mu={momentum}",  # momentum correction (Lin et al. 2018)
}
RANKS = 4  # of the study
AIM = 1 / 4  # target of the second setting: this fraction of the default setting's bytes
AT_MOST = 0.8  # a setting that sends more than this fraction is not used


def spec(name: str, *settings: str) -> str:
    given = ",".join(filter(None, settings))
    return tithe.check_spec(f"{name}:{given}" if given else name)


def feedbacks(codec: dict, momentum: float) -> tuple[str, str]:
    """Returns the feedback of this codec in the study, and the alternative that a reader would try."""
    if codec["lossless"]:
        return "", ""
    if codec["name"] in PUBLISHED_FEEDBACK:
        return PUBLISHED_FEEDBACK[codec["name"]].format(momentum=momentum), ""
    return "", "feedback=none"


def bytes_of(text: str, gradient: np.ndarray) -> int | None:
    """Returns the bytes of one of RANKS in one round; None if these settings do not exist, or not for this number of
    ranks."""

    def exchange(session: tithe.Session) -> int:
        with session:
            session.wait(session.sync({"g": gradient.copy()}))
            session.commit()
            return session.stats()["bytes_sent"]

    try:
        sessions = tithe.Session.loop(RANKS, codec=text, strategy="gather", min_values=1, lanes=0)
        with ThreadPoolExecutor(RANKS) as threads:
            return list(threads.map(exchange, sessions))[0]
    # The first rank that refuses leaves, so other ranks may get its loss as their error
    except (ValueError, tithe.Error):
        return None


def numbers(codec: dict) -> list[str]:
    """Returns the default settings with one number changed."""
    out = []
    for p in codec["params"]:
        if "choices" in p:
            continue
        whole = p["default"].is_integer() and p["high"] > 1
        values = [p["default"] * factor for factor in (1 / 4, 1 / 2, 2, 4) if p["default"] != 0]
        out += [f"{p['name']}={v:g}" for v in values if p["low"] <= v <= p["high"] and (v.is_integer() or not whole)]
    return out


def words(codec: dict) -> list[str]:
    """Returns the default settings with one word changed, except `mode`, whose values imitate the bytes of other
    systems."""
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
    default_bytes = bytes_of(first, gradient)
    if default_bytes is None:
        return None
    for settings in (numbers(codec), words(codec)):
        tried = [(bytes_of(f"{name}:{setting}", gradient), setting) for setting in settings]
        smaller = [(sent, setting) for sent, setting in tried if sent and sent < AT_MOST * default_bytes]
        if smaller:
            _, setting = min(smaller, key=lambda pair: abs(math.log(pair[0] / default_bytes / AIM)))
            return spec(name, setting, feedback)
    return next((spec(name, word, feedback) for word in words(codec) if _serves(name, word, feedback)), None)


def _serves(name: str, *settings: str) -> bool:
    """Returns True if the codec accepts these settings: feedback is refused for settings under which residuals grow."""
    try:
        spec(name, *settings)
    except ValueError:
        return False
    return True

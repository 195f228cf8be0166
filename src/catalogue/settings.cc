// SPDX-License-Identifier: Apache-2.0
#include "catalogue/settings.h"

namespace tithe {

namespace {

// The settings with the longest payload for n values.
Settings widest(const Codec& codec, std::size_t n) {
  Settings best = defaults(codec);
  for (std::size_t i = 0; i < codec.params.size(); ++i) {
    for (const double end : {codec.params[i].low, codec.params[i].high}) {
      Settings other = best;
      other.value[i] = end;
      if (codec.phases[0].bound(other, n) > codec.phases[0].bound(best, n)) best = other;
    }
  }
  return best;
}

// Advances to the next combination of word parameters; returns false after the last one, and resets to the first.
bool next_choices(const Codec& codec, Settings& settings) {
  for (std::size_t k = 0; k < codec.params.size(); ++k) {
    const ParamSpec& param = codec.params[k];
    if (param.choices.empty()) continue;
    if (++settings.value[k] <= param.high) return true;
    settings.value[k] = param.low;
  }
  return false;
}

Status check_all(const Codec& codec, const Settings& settings, std::size_t n,
                 std::span<const ByteView> payloads) {
  const Impl& impl = codec.best(this_machine());
  for (const ByteView payload : payloads) TITHE_TRY(impl.check({.settings = settings}, n, payload));
  return {};
}

}  // namespace

Result<Settings> settings_of(const Codec& codec, std::size_t n, std::span<const ByteView> payloads) {
  const Settings most = widest(codec, n);
  const Status refused = check_all(codec, most, n, payloads);
  if (refused.ok()) return most;
  for (Settings settings : {defaults(codec), most}) {
    for (std::size_t k = 0; k < codec.params.size(); ++k)
      if (!codec.params[k].choices.empty()) settings.value[k] = codec.params[k].low;
    do {
      if (check_all(codec, settings, n, payloads).ok()) return settings;
    } while (next_choices(codec, settings));
  }
  return refused;
}

}  // namespace tithe

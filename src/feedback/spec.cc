// SPDX-License-Identifier: Apache-2.0
#include "tithe/seam/spec.h"

#include "codec/params.h"
#include "feedback/policy.h"

namespace tithe {

std::string to_string(const Spec& spec) {
  std::string out(spec.codec->name);
  for (std::size_t i = 0; i < spec.codec->params.size(); ++i)
    params::append(out, spec.codec->params[i], spec.settings[i], spec.codec->params[i].fallback);
  feedback::append(out, *spec.codec, spec.feedback);
  return out;
}

}  // namespace tithe

// SPDX-License-Identifier: Apache-2.0
// Finds settings for a payload of which only the codec and the number of values are known (docs/reference/format.md,
// section 4).
#include "catalogue/settings.h"

#include "support/codec_run.h"

namespace tithe {
namespace {

// The default settings, and those with one other choice.
std::vector<Settings> each_choice(const Codec& codec) {
  std::vector<Settings> all = {defaults(codec)};
  for (std::size_t k = 0; k < codec.params.size(); ++k)
    for (std::size_t choice = 0; choice < codec.params[k].choices.size(); ++choice) {
      all.push_back(defaults(codec));
      all.back().value[k] = static_cast<double>(choice);
    }
  return all;
}

TEST(SettingsOf, ReadTheSettingsOfEveryCodecAndChoice) {
  constexpr std::size_t kValues = 3000;
  const harness::Floats grad = harness::bell(kValues);
  for (const Codec* codec : all_codecs()) {
    if (codec->phases.size() != 1) continue;  // payloads of one phase alone cannot be decoded
    for (const Settings& own : each_choice(*codec)) {
      SCOPED_TRACE(to_string(Spec{codec, own, {}}));
      const Impl& impl = codec->best(this_machine());
      const harness::EncodeOutput sent = harness::encode(*codec, impl, {.settings = own}, grad);
      const ByteView payloads[] = {ByteView(sent.payload)};
      const Result<Settings> found = settings_of(*codec, kValues, payloads);
      ASSERT_TRUE(found.ok()) << found.status().what();
      const harness::Floats got =
          harness::decode_one(*codec, impl, {.settings = *found}, kValues, sent.payload);
      const harness::Floats want =
          harness::decode_one(*codec, impl, {.settings = own}, kValues, sent.payload);
      for (std::size_t i = 0; i < kValues; ++i)
        ASSERT_NEAR(got[i], want[i], 1e-6) << i;  // minmax:mode=literal rounds otherwise
    }
  }
}

TEST(SettingsOf, NameTheErrorInInvalidBytes) {
  const harness::Payload none(7, 0xff);
  const ByteView payloads[] = {ByteView(none)};
  for (const Codec* codec : all_codecs())
    if (codec->phases.size() == 1) {
      EXPECT_EQ(settings_of(*codec, 3000, payloads).status().code(), Code::kCorrupt) << codec->name;
    }
}

}  // namespace
}  // namespace tithe

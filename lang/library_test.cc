// SPDX-License-Identifier: Apache-2.0
// The library's codecs that are programs: all their settings are compiled into the library for every level of this
// build, and match the interpreter.
#include "lang/library.h"

#include <gtest/gtest.h>

#include "lang/cpp/compiled.h"
#include "lang/cpp/object_cache.h"
#include "lang/prepare.h"
#include "support/targets.h"
#include "tithe/seam/catalogue.h"

namespace tithe::lang {
namespace {

// Settings that have the combination `at`; real parameters have their defaults.
Settings settings_of(const LoadedProgram& program, std::size_t at) {
  Settings settings = defaults(program.codec);
  for (std::size_t k = program.counts.size(); k-- > 0;) {
    if (program.counts[k] == 0) continue;
    settings.value[k] = static_cast<double>(at % program.counts[k]);
    at /= program.counts[k];
  }
  return settings;
}

bool has_objects(Level level) {
  for (const BuiltIn& built : built_in())
    if (built.level == level) return true;
  return false;
}

TEST(LibraryPrograms, EverySettingIsCompiledAndEqualsTheInterpreter) {
  for (const ProgramText& text : program_texts()) {
    SCOPED_TRACE(text.name);
    const LoadedProgram& program = *find_codec(text.name)->program;
    EXPECT_EQ(program.name, text.name);
    harness::on_every_target([&] {
      if (!has_objects(level_in_use())) return;  // the lowest level of a processor with vectors
      for (std::size_t c = 0; c < program.combinations.size(); ++c) {
        const Settings settings = settings_of(program, c);
        ASSERT_EQ(program.index_of(settings), c);
        EXPECT_TRUE(is_built_in(program, settings)) << c;
        for (std::size_t phase = 0; phase < program.phases.size(); ++phase) {
          const Combination& of = program.of(settings, phase);
          if (by_kernels(of)) continue;
          const Object* const object = object_of(of);
          ASSERT_NE(object, nullptr) << c;
          EXPECT_TRUE(matches_interpreter(*object, of, settings, kAllKinds)) << c << ", phase " << phase;
        }
      }
    });
  }
}

// There is no log line about a codec that runs as intended.
TEST(LibraryPrograms, DescriptionsOmitTheImplementation) {
  for (const ProgramText& text : program_texts()) {
    const Result<Spec> spec = parse_spec(text.name);
    ASSERT_TRUE(spec.ok()) << spec.status().what();
    if (has_objects(level_in_use())) {
      EXPECT_EQ(how_it_runs(*spec), "");
    }
  }
}

}  // namespace
}  // namespace tithe::lang

// SPDX-License-Identifier: Apache-2.0
#include "lang/cpp/object_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "lang/cpp/compiled.h"
#include "lang/cpp/cpp_compiler.h"
#include "lang/loader.h"
#include "lang/store/seal.h"

namespace tithe::lang {
namespace {

namespace fs = std::filesystem;

constexpr const char* kText =
    "codec cached \"for a test\"\nblock 64\nencode\n  size = mean(abs(x))\nsend\n  size: f32\n"
    "  code: u3[] = if x < 0 then 5 else 2\ndecode\n  if code == 5 then -size else size\n";

// A folder that its owner may not write to. Root may write anywhere, so root switches to another user for the
// duration.
class ReadOnly {
 public:
  explicit ReadOnly(const fs::path& folder) : folder_(folder), root_(::geteuid() == 0) {
    if (root_) give(kNobody);
    ::chmod(folder_.c_str(), 0500);
    if (root_) static_cast<void>(::seteuid(kNobody));
  }
  ~ReadOnly() {
    if (root_) static_cast<void>(::seteuid(0));
    ::chmod(folder_.c_str(), 0700);
    if (root_) give(0);
  }
  ReadOnly(const ReadOnly&) = delete;
  ReadOnly& operator=(const ReadOnly&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
  void give(uid_t to) const {
    static_cast<void>(::chown(folder_.c_str(), to, static_cast<gid_t>(-1)));
    for (const auto& entry : fs::directory_iterator(folder_))
      static_cast<void>(::chown(entry.path().c_str(), to, static_cast<gid_t>(-1)));
  }
  const fs::path folder_;
  const bool root_;
};

// Each test has its own cache; the environment is restored afterwards.
class ObjectCache : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tithe_cache_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    ::setenv("TITHE_CACHE", folder_.c_str(), 1);
    ::unsetenv("TITHE_CXX");
    Problems problems;
    program_ = compile({"cached.codec", kText}, problems);
    ASSERT_NE(program_, nullptr);
    body_ = emit_cpp(of().program, of().schedule);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    fs::remove_all(folder_.string() + "_tools");
    ::unsetenv("TITHE_CACHE");
    ::unsetenv("TITHE_CXX");
  }
  const Combination& of() const { return program_->combinations[0]; }
  Found find() {
    return find_object(body_, level_in_use(), [&](const Object& o, unsigned kinds) {
      checked_ = kinds;
      return agrees_ && matches_interpreter(o, of(), defaults(program_->codec), kinds);
    });
  }
  std::vector<fs::path> objects() const {
    std::vector<fs::path> all;
    if (fs::is_directory(folder_))
      for (const auto& entry : fs::directory_iterator(folder_))
        if (entry.path().extension() == ".so") all.push_back(entry.path());
    return all;
  }

  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Not written over: a process may have mapped it.
  static void replace(const fs::path& path, const std::string& bytes) {
    const fs::path fresh = path.string() + ".fresh";
    std::ofstream(fresh, std::ios::binary) << bytes;
    fs::permissions(fresh, fs::perms::owner_read | fs::perms::owner_write);
    fs::rename(fresh, path);
  }
  // Replaces the compiler by a script that copies one object, so that a test can create many. Puts an object into the
  // cache, with `padding` bytes at its end, which loaders ignore.
  void compile_by_copying(std::size_t padding = 0) {
    static std::string made;  // by the real one, once for all tests
    if (made.empty()) {
      ASSERT_NE(find().object, nullptr);
      ASSERT_EQ(objects().size(), 1U);
      made = read(objects()[0]);
      fs::remove(objects()[0]);
    }
    const fs::path tools = folder_.string() + "_tools";
    fs::create_directories(tools);
    std::ofstream(tools / "made.so", std::ios::binary)
        << made.substr(0, made.size() - kSealBytes) << std::string(padding, '\0');
    std::ofstream(tools / "copies") << "#!/bin/sh\nexec cp " << (tools / "made.so").string()
                                    << " program.so\n";
    fs::permissions(tools / "copies", fs::perms::all);
    ::setenv("TITHE_CXX", (tools / "copies").c_str(), 1);
    ASSERT_NE(find().object, nullptr);
    ASSERT_EQ(objects().size(), 1U);
  }

  fs::path folder_;
  std::unique_ptr<LoadedProgram> program_;
  CppBody body_;
  unsigned checked_ = 0;
  bool agrees_ = true;
};

TEST_F(ObjectCache, CompiledOnceThenFromTheCache) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  const Found first = find();
  ASSERT_NE(first.object, nullptr) << first.how;
  EXPECT_EQ(checked_, kAllKinds);
  EXPECT_NE(first.how.find(" s"), std::string::npos) << first.how;
  const Found again = find();
  EXPECT_NE(again.object, nullptr);
  EXPECT_NE(again.how.find("from the cache"), std::string::npos) << again.how;
  EXPECT_EQ(checked_, 1U);
  ASSERT_EQ(objects().size(), 1U);
  struct stat is {};
  ASSERT_EQ(::stat(objects()[0].c_str(), &is), 0);
  EXPECT_EQ(is.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat(folder_.c_str(), &is), 0);
  EXPECT_EQ(is.st_mode & 0777U, 0700U);

  // An object under another program's name is not used, and that program is compiled.
  CppBody other = body_;
  other.text += "// another\n";
  other.key ^= 1;
  fs::path name = objects()[0].filename();
  const std::string renamed = fmt::format("{:016x}", other.key) + name.string().substr(16);
  fs::copy(objects()[0], folder_ / renamed);
  fs::permissions(folder_ / renamed, fs::perms::owner_read | fs::perms::owner_write);
  body_ = other;
  const Found fresh = find();
  EXPECT_NE(fresh.object, nullptr) << fresh.how;
  EXPECT_EQ(fresh.how.find("from the cache"), std::string::npos) << fresh.how;
}

TEST_F(ObjectCache, KeepsTheMostRecentlyUsedObjects) {
  fs::create_directories(folder_);
  const auto now = fs::file_time_type::clock::now();
  const auto write = [&](const std::string& name, int hours) {
    std::ofstream(folder_ / name) << name;
    fs::last_write_time(folder_ / name, now - std::chrono::hours(hours));
  };
  for (int k = 0; k < 5; ++k) write(fmt::format("{}.so", k), 10 - k);
  write("0.so.lock", 10);
  write("4.so.lock", 10);
  write("7.so.new", 1);
  write("8.so.new", 30);
  trim_cache(folder_, 3);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_)) left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"2.so", "3.so", "4.so", "4.so.lock", "7.so.new"}));
  trim_cache(folder_ / "none", 3);  // no such folder
}

TEST_F(ObjectCache, RefusesObjectsThatDifferFromTheInterpreter) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  agrees_ = false;
  const Found found = find();
  EXPECT_EQ(found.object, nullptr);
  EXPECT_NE(found.how.find("differ from the interpreter's"), std::string::npos) << found.how;
  EXPECT_TRUE(objects().empty());
}

TEST_F(ObjectCache, WorldWritableFolderIsRefusedWithTheCure) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  fs::create_directories(folder_);
  fs::permissions(folder_, fs::perms::all);
  const Found found = find();
  EXPECT_EQ(found.object, nullptr);
  EXPECT_NE(found.how.find("chmod go-w " + folder_.string()), std::string::npos) << found.how;
}

TEST_F(ObjectCache, LinkedFolderIsRefused) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  const fs::path other = folder_.string() + "_elsewhere";
  fs::create_directories(other);
  fs::create_directory_symlink(other, folder_);
  EXPECT_EQ(find().how, "interpreted: " + folder_.string() + " cannot be opened as a folder");
  EXPECT_TRUE(fs::is_empty(other));
  fs::remove_all(other);
}

// An object that others could have written, or that another version wrote, is not used: both are compiled anew.
TEST_F(ObjectCache, ObjectOfAnotherUserIsCompiledAgain) {
  const Result<Compiler> compiler = find_compiler();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().what();
  ASSERT_NE(find().object, nullptr);
  ASSERT_EQ(objects().size(), 1U);
  const fs::path object = objects()[0];
  const auto is_new = [&] {
    checked_ = 0;
    const Found found = find();
    EXPECT_NE(found.object, nullptr) << found.how;
    EXPECT_EQ(found.how.find("from the cache"), std::string::npos) << found.how;
    EXPECT_EQ(checked_, kAllKinds);
    EXPECT_NE(find().how.find("from the cache"), std::string::npos);
  };
  fs::permissions(object, fs::perms::others_write, fs::perm_options::add);
  is_new();

  for (const std::uint32_t other : {kObjectInterface + 1, kObjectInterface - 1}) {
    std::string text = cpp_file(std::span(&body_, 1), "tithe_program");
    const std::string row = fmt::format("    {{{}, ", kObjectInterface);
    const std::size_t at = text.rfind(row);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, row.size(), fmt::format("    {{{}, ", other));
    const Result<std::string> made = compile_cpp(*compiler, text, flag_of(level_in_use()), folder_.string());
    ASSERT_TRUE(made.ok()) << made.status().what();
    fs::rename(folder_ / *made, object);
    is_new();
  }

  fs::remove(object);  // not written over: it is mapped
  std::ofstream(object) << "no object";
  is_new();
}

// A truncated or damaged object would crash the process that loads it: it is detected before, and compiled anew.
TEST_F(ObjectCache, DamagedObjectIsCompiledAgainAndReportedOnce) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  compile_by_copying();
  const fs::path object = objects()[0];
  const std::string good = read(object);
  struct Damage {
    const char* message;
    std::string bytes;
  };
  std::vector<Damage> all = {
      {"it is empty", ""},
      {"it was truncated, or has no checksum", good.substr(0, good.size() - kSealBytes)},
      {"it was truncated, or has no checksum", good + "more"},
      {"it was truncated, or has no checksum", "no object"}};
  for (const std::size_t left :
       {std::size_t{1}, std::size_t{64}, std::size_t{4096}, good.size() / 2, good.size() - 1})
    all.push_back({"it was truncated, or has no checksum", good.substr(0, left)});
  for (const std::size_t at : {std::size_t{0}, std::size_t{33}, good.size() / 3, good.size() - kSealBytes - 1,
                               good.size() - kSealBytes, good.size() - 20}) {
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    all.push_back({"its checksum does not match", flipped});
  }
  std::string hole = good;
  std::fill_n(hole.begin() + static_cast<std::ptrdiff_t>(good.size() / 2), 4096, '\0');
  all.push_back({"its checksum does not match", hole});
  for (const Damage& damage : all) {
    replace(object, damage.bytes);
    checked_ = 0;
    const Found found = find();
    EXPECT_NE(found.object, nullptr) << found.how;
    EXPECT_NE(found.how.find(std::string("in the cache is damaged: ") + damage.message), std::string::npos)
        << found.how;
    EXPECT_EQ(checked_, kAllKinds);
    const Found again = find();
    EXPECT_NE(again.how.find("from the cache"), std::string::npos) << again.how;
    EXPECT_EQ(again.how.find("damaged"), std::string::npos) << again.how;
  }
  EXPECT_EQ(objects().size(), 1U);
}

// In a read-only cache an intact object is used; otherwise the interpreter runs.
TEST_F(ObjectCache, ReadOnlyFolderIsReadAndChecked) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  compile_by_copying();
  const fs::path object = objects()[0];
  const std::string good = read(object);
  {
    const ReadOnly closed(folder_);
    const Found found = find();
    EXPECT_NE(found.object, nullptr) << found.how;
    EXPECT_NE(found.how.find("from the cache"), std::string::npos) << found.how;
  }
  replace(object, good.substr(0, good.size() / 2));
  {
    const ReadOnly closed(folder_);
    const Found found = find();
    EXPECT_EQ(found.object, nullptr);
    EXPECT_NE(found.how.find("interpreted: cannot write to " + folder_.string()), std::string::npos)
        << found.how;
    EXPECT_NE(found.how.find("in the cache is damaged: it was truncated"), std::string::npos) << found.how;
  }
  EXPECT_NE(find().object, nullptr);
}

// No file may grow here, as on a disk without room.
TEST_F(ObjectCache, FullDiskLeavesNoFiles) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto find_within = [&](rlim_t bytes) {
    const rlimit limit{bytes, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Found found = find();
    ::setrlimit(RLIMIT_FSIZE, &before);
    return found;
  };
  const Found no_text = find_within(100);  // the text itself has no room
  EXPECT_EQ(no_text.object, nullptr);
  EXPECT_NE(no_text.how.find("cannot write to " + folder_.string()), std::string::npos) << no_text.how;
  compile_by_copying(1U << 20);  // more than the text has
  const auto object = static_cast<rlim_t>(fs::file_size(objects()[0]));
  fs::remove(objects()[0]);
  for (const rlim_t room : {object - kSealBytes - 1, object - 1}) {  // the object, and its seal
    const Found found = find_within(room);
    EXPECT_EQ(found.object, nullptr) << room;
    EXPECT_NE(found.how.find("interpreted: "), std::string::npos) << found.how;
  }
  EXPECT_TRUE(objects().empty());
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().extension(), ".lock") << entry.path();
  EXPECT_NE(find_within(object).object, nullptr);
  std::signal(SIGXFSZ, old_handler);
}

// Ranks that compile the same text concurrently, on a file system without locks: each writes its own file.
TEST_F(ObjectCache, ConcurrentCompilationsLeaveOneObject) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  compile_by_copying();
  const fs::path object = objects()[0];
  fs::remove(object.string() + ".lock");
  fs::create_directory(object.string() + ".lock");  // cannot be opened as a file
  replace(object, read(object).substr(0, 5000));
  constexpr std::size_t kRanks = 4;
  Found found[kRanks];
  std::vector<std::thread> ranks;
  for (Found& own : found)
    ranks.emplace_back(
        [&] { own = find_object(body_, level_in_use(), [](const Object&, unsigned) { return true; }); });
  for (std::thread& rank : ranks) rank.join();
  for (const Found& own : found) EXPECT_NE(own.object, nullptr) << own.how;
  EXPECT_EQ(objects().size(), 1U);
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_NE(entry.path().extension(), ".new") << entry.path();
  EXPECT_NE(find().how.find("from the cache"), std::string::npos);
}

TEST_F(ObjectCache, WithoutACompilerTheInterpreterRunsAndGivesTheReason) {
  ::setenv("TITHE_CXX", "none", 1);
  EXPECT_EQ(find().how, "interpreted: TITHE_CXX=none");
  ::setenv("TITHE_CXX", "no-such-compiler", 1);
  EXPECT_EQ(find().how, "interpreted: TITHE_CXX: 'no-such-compiler' does not exist");
  ::setenv("TITHE_CXX", "/bin/false", 1);
  const Found found = find();
  EXPECT_EQ(found.object, nullptr);
  EXPECT_NE(found.how.find("/bin/false refuses it"), std::string::npos) << found.how;
  EXPECT_TRUE(objects().empty());
}

TEST_F(ObjectCache, GeneratedTextIsDeterministic) {
  const CppBody again = emit_cpp(of().program, of().schedule);
  EXPECT_EQ(again.text, body_.text);
  EXPECT_EQ(again.key, body_.key);
}

// The verification detects a wrong byte, a wrong residual and a wrong value.
TEST_F(ObjectCache, SelfCheckDetectsAWrongObject) {
  static const Object* right = nullptr;
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  right = find().object;
  ASSERT_NE(right, nullptr);
  const Settings settings = defaults(program_->codec);
  EXPECT_TRUE(matches_interpreter(*right, of(), settings, kAllKinds));
  Object wrong = *right;
  wrong.encode = [](const ObjectCall* call, const float* g, const float* r, float* left, std::uint8_t* out,
                    ObjectAnswer* answer) {
    right->encode(call, g, r, left, out, answer);
    if (call->n > 64) out[5] ^= 1;
  };
  EXPECT_FALSE(matches_interpreter(wrong, of(), settings, 1));
  wrong.encode = [](const ObjectCall* call, const float* g, const float* r, float* left, std::uint8_t* out,
                    ObjectAnswer* answer) {
    right->encode(call, g, r, left, out, answer);
    if (call->n > 64 && left != nullptr) left[64] = -left[64];
  };
  EXPECT_FALSE(matches_interpreter(wrong, of(), settings, 1));
  wrong = *right;
  wrong.decode = [](const ObjectCall* call, const std::uint8_t* const* payloads, std::size_t count,
                    const float* base, float divide, float* out) {
    right->decode(call, payloads, count, base, divide, out);
    if (call->n > 64) out[17] += 1;
  };
  EXPECT_FALSE(matches_interpreter(wrong, of(), settings, 1));
}

}  // namespace
}  // namespace tithe::lang

// SPDX-License-Identifier: Apache-2.0
#include "lang/store/seal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace tithe::lang {
namespace {

namespace fs = std::filesystem;

class Seal : public testing::Test {
 protected:
  void TearDown() override { fs::remove(path_); }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string read() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  Status look() const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    const Status found = check_seal(fd);
    ::close(fd);
    return found;
  }
  const fs::path path_ = fs::temp_directory_path() / ("tithe_seal_" + std::to_string(::getpid()));
};

TEST_F(Seal, VerifiesAndKeepsTheSealedContent) {
  for (const std::size_t bytes : {0, 1, 47, 48, 49, 5000}) {
    const std::string body(bytes, 'x');
    write(body);
    EXPECT_EQ(look().code(), Code::kCorrupt) << bytes;
    ASSERT_TRUE(seal(path_).ok());
    EXPECT_EQ(read().substr(0, bytes), body);
    EXPECT_EQ(read().size(), bytes + kSealBytes);
    EXPECT_TRUE(look().ok()) << look().what();
  }
}

TEST_F(Seal, DetectsEveryTruncationAndBitFlip) {
  std::string body;
  for (int k = 0; k < 300; ++k) body += static_cast<char>(k * k);
  write(body);
  ASSERT_TRUE(seal(path_).ok());
  const std::string whole = read();
  for (std::size_t left = 0; left < whole.size(); ++left) {
    write(whole.substr(0, left));
    EXPECT_EQ(look().code(), Code::kCorrupt) << left;
  }
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = whole;
      other[at] = static_cast<char>(other[at] ^ (1 << bit));
      write(other);
      EXPECT_EQ(look().code(), Code::kCorrupt) << at << " " << bit;
    }
  write(whole + '\0');
  EXPECT_EQ(look().code(), Code::kCorrupt);
  write(whole + whole);  // the seal of the second copy has the size of one copy
  EXPECT_EQ(look().code(), Code::kCorrupt);
  write(whole);
  EXPECT_TRUE(look().ok());
}

TEST_F(Seal, ReportsSystemErrors) {
  EXPECT_EQ(seal("/no/such/file").code(), Code::kIo);
  EXPECT_EQ(seal("/").code(), Code::kIo);
  EXPECT_EQ(check_seal(-1).code(), Code::kIo);
}

}  // namespace
}  // namespace tithe::lang

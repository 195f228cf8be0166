// SPDX-License-Identifier: Apache-2.0
// .npy: numpy.lib.format, versions 1.0 to 3.0:
//   "\x93NUMPY" | u8 major | u8 minor | u16 or (from 2.0) u32 header bytes | header, a Python dict as text | values
#include "value_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/bytes.h"

namespace tithe::cli {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

Status io(const fs::path& path, std::string_view what, int error) {
  return {Code::kIo, fmt::format("{}: {}: {}", path.string(), what, std::strerror(error))};
}

// What stands behind 'key': in the header's dict, up to the comma that ends it.
std::string_view entry(std::string_view dict, std::string_view key) {
  const std::size_t at = dict.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  std::string_view rest = dict.substr(at + key.size() + 3);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const bool tuple = !rest.empty() && rest.front() == '(';
  return rest.substr(0, tuple ? rest.find(')') + 1 : rest.find_first_of(",}"));
}

Result<std::vector<float>> bare(const fs::path& path, ByteView bytes) {
  if (bytes.size() % 4 != 0)
    return Status(Code::kInvalid, fmt::format("{}: {} bytes are neither a .npy file nor whole float32 values",
                                              path.string(), bytes.size()));
  std::vector<float> values(bytes.size() / 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = wire::get<float>(&bytes[4 * i]);
  return values;
}

// Product of the numbers in "(3, 4)"; false on overflow.
bool count_of(std::string_view shape, std::size_t* count) {
  *count = 1;
  std::size_t number = 0;
  bool digits = false;
  for (const char c : shape) {
    if (c >= '0' && c <= '9') {
      if (number > (SIZE_MAX - 9) / 10) return false;
      number = 10 * number + static_cast<std::size_t>(c - '0');
      digits = true;
    } else if (digits) {
      if (__builtin_mul_overflow(*count, number, count)) return false;
      number = 0;
      digits = false;
    }
  }
  return true;
}

}  // namespace

Result<std::vector<std::uint8_t>> read_file(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return io(path, "cannot read", EISDIR);
  std::ifstream in(path, std::ios::binary);
  if (!in) return io(path, "cannot open", errno);
  std::vector<std::uint8_t> bytes;
  for (std::size_t have = 0; in;) {
    bytes.resize(have + (std::size_t{1} << 20) + have / 2);
    in.read(reinterpret_cast<char*>(bytes.data() + have), static_cast<std::streamsize>(bytes.size() - have));
    have += static_cast<std::size_t>(in.gcount());
    if (!in) bytes.resize(have);
  }
  if (in.bad()) return io(path, "cannot read", errno);
  return bytes;
}

Status write_file(const fs::path& path, ByteView bytes) {
  std::string other = path.string() + ".XXXXXX";
  const int fd = mkstemp(other.data());
  if (fd < 0) return io(path, "cannot write beside it", errno);
  const auto give_up = [&](std::string_view what) {
    const Status s = io(path, what, errno);
    close(fd);
    unlink(other.c_str());
    return s;
  };
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return give_up("cannot write");
    done += static_cast<std::size_t>(n);
  }
  const mode_t mask = umask(0);
  umask(mask);
  if (fchmod(fd, 0666 & ~mask) != 0 || fsync(fd) != 0) return give_up("cannot write");
  if (rename(other.c_str(), path.c_str()) != 0) return give_up("cannot rename to it");
  close(fd);
  return {};
}

Result<std::vector<float>> parse_values(const fs::path& path, ByteView bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kNpyMagic)) return bare(path, bytes);
  const auto wrong = [&](std::string_view what) {
    return Status(Code::kInvalid, fmt::format("{}: {}", path.string(), what));
  };
  if (bytes.size() < 10) return wrong("a .npy file cut off in its first bytes");
  const bool wide = bytes[6] >= 2;
  if (bytes[6] < 1 || bytes[6] > 3 || (wide && bytes.size() < 12))
    return wrong("a .npy file of an unknown version");
  const std::size_t at = wide ? 12 : 10;
  const std::size_t header_bytes =
      wide ? wire::get<std::uint32_t>(&bytes[8]) : wire::get<std::uint16_t>(&bytes[8]);
  if (header_bytes > bytes.size() - at) return wrong("a .npy file cut off in its header");
  const std::string_view dict = text.substr(at, header_bytes);
  const std::string_view type = entry(dict, "descr");
  const std::string_view shape = entry(dict, "shape");
  if (type != "'<f4'")
    return wrong(fmt::format(
        "holds values of type {}, need '<f4'; in Python: numpy.save(path, a.astype('<f4'))", type));
  if (entry(dict, "fortran_order") != "False" && shape.find(',') + 2 < shape.size())
    return wrong("is in Fortran order; in Python: numpy.save(path, numpy.ascontiguousarray(a))");
  std::size_t count = 0;
  if (shape.empty() || !count_of(shape, &count) || count > bytes.size() / 4 ||
      4 * count != bytes.size() - at - header_bytes)
    return wrong(fmt::format("its shape {} does not fit the {} bytes of values", shape,
                             bytes.size() - at - header_bytes));
  return bare(path, bytes.subspan(at + header_bytes));
}

Status write_values(const fs::path& path, std::span<const float> values) {
  std::string bytes;
  if (path.extension() == ".npy") {
    std::string dict =
        fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.size());
    dict.append(63 - (kNpyMagic.size() + 4 + dict.size()) % 64, ' ');
    dict += '\n';
    bytes = kNpyMagic;
    bytes += {1, 0, static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)};
    bytes += dict;
  }
  const std::size_t head = bytes.size();
  bytes.resize(head + 4 * values.size());
  auto* raw = reinterpret_cast<std::uint8_t*>(bytes.data());
  for (std::size_t i = 0; i < values.size(); ++i) wire::put(raw + head + 4 * i, values[i]);
  return write_file(path, {raw, bytes.size()});
}

}  // namespace tithe::cli

// SPDX-License-Identifier: Apache-2.0
#pragma once
// Registers and stack of the kernels in a cubin, which is an ELF file with a section .nv.info.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace tithe::testing {

struct KernelUse {
  std::uint32_t registers = 0;  // per thread
  std::uint32_t stack = 0;      // bytes per thread, in the GPU's memory: spilled registers, or an array
};

// By the name of the kernel.
inline std::map<std::string, KernelUse> kernels_of(const std::string& cubin) {
  const auto at = [&]<typename T>(std::uint64_t offset, T value) {
    std::memcpy(&value, cubin.data() + offset, sizeof value);
    return value;
  };
  const auto file = at(0, Elf64_Ehdr{});
  const auto section = [&](std::uint64_t k) { return at(file.e_shoff + k * file.e_shentsize, Elf64_Shdr{}); };
  const auto text = [&](const Elf64_Shdr& table, std::uint64_t offset) {
    return std::string(cubin.data() + table.sh_offset + offset);
  };
  Elf64_Shdr symbols = {}, info = {};
  for (std::uint64_t k = 0; k < file.e_shnum; ++k) {
    const Elf64_Shdr one = section(k);
    if (one.sh_type == SHT_SYMTAB) symbols = one;
    if (text(section(file.e_shstrndx), one.sh_name) == ".nv.info") info = one;
  }
  // Entries: u8 format, u8 attribute, u16 bytes of a value, and the value: u32 symbol, u32 number.
  constexpr std::uint8_t kSized = 4, kFrameSize = 0x11, kRegisters = 0x2f;
  std::map<std::string, KernelUse> kernels;
  for (std::uint64_t from = info.sh_offset; from < info.sh_offset + info.sh_size;) {
    const auto format = at(from, std::uint8_t{}), attribute = at(from + 1, std::uint8_t{});
    if (format == kSized && (attribute == kFrameSize || attribute == kRegisters)) {
      const auto symbol =
          at(symbols.sh_offset + at(from + 4, std::uint32_t{}) * sizeof(Elf64_Sym), Elf64_Sym{});
      KernelUse& use = kernels[text(section(symbols.sh_link), symbol.st_name)];
      (attribute == kFrameSize ? use.stack : use.registers) = at(from + 8, std::uint32_t{});
    }
    from += 4 + (format == kSized ? at(from + 2, std::uint16_t{}) : 0);
  }
  return kernels;
}

// The kernels of `cubin` spill nothing, and several blocks of their threads fit on a multiprocessor.
inline void expect_registers_only(const std::string& cubin) {
  ASSERT_EQ(cubin.substr(1, 3), "ELF");
  const std::map<std::string, KernelUse> kernels = kernels_of(cubin);
  EXPECT_TRUE(kernels.contains("tithe_plan_encode"));
  for (const auto& [name, use] : kernels) {
    EXPECT_LE(use.registers, 128U) << name;
    EXPECT_EQ(use.stack, 0U) << name;
  }
}

}  // namespace tithe::testing

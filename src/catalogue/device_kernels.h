// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of a codec on a GPU: the part of the codec language's library that the engine calls. lang/cuda/ has the
// promises of each.
#include "lang/cuda/device_program.h"
#include "lang/kernel_source.h"

namespace tithe::catalogue {

using lang::DeviceLane;                            // the stream and the memory of a thread
using DeviceMemory = lang::DeviceKernels::Memory;  // that a batch takes of a lane
using lang::DeviceProgram;                         // encodes and decodes on the GPU
using lang::kernel_settings;                       // other settings of the same codec, for its kernels
using lang::kernel_source;
using lang::KernelSource;  // the program from which a codec's kernels are generated, with its settings
using lang::on_device;
using lang::OnDevice;  // a verified program, or the reason why the host runs the codec

}  // namespace tithe::catalogue

// pare.ToChannelsLast [N,C,spatial...] -> [N,spatial...,C] and pare.ToPlain, its inverse: a transpose of
// [C, spatial] in each image. Any type of 1, 2, 4 or 8 bytes an element.
#pragma once

#include "engine/ops/kernel.h"

namespace pare::change_layout {

Kernel to_channels_last_tiles_kernel();  // tile by tile, so that both sides stay in cache
Kernel to_plain_tiles_kernel();
Kernel to_channels_last_ref_kernel();
Kernel to_plain_ref_kernel();

}  // namespace pare::change_layout

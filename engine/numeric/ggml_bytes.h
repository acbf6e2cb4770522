// Numbers in the bytes of ggml's blocks, which are not aligned.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/numeric/f16.h"

namespace pare::ggml {

using Byte = std::uint8_t;

inline float half_at(const Byte* p) {
  std::uint16_t code;
  std::memcpy(&code, p, sizeof code);
  return decode_f16(code);
}

}  // namespace pare::ggml

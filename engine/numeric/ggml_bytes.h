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

// Scale and minimum of run j of 32, of Q4_K and Q5_K: 6 bits each, in 12 bytes.
inline void scale_and_min(const Byte* s, int j, int& scale, int& minimum) {
  if (j < 4) {
    scale = s[j] & 63;
    minimum = s[j + 4] & 63;
  } else {
    scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    minimum = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  }
}

}  // namespace pare::ggml

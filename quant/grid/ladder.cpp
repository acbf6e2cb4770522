#include "quant/grid/ladder.h"

#include <algorithm>

#include "engine/numeric/convert.h"
#include "engine/numeric/pack.h"
#include "engine/numeric/table.h"
#include "quant/grid/ladder_table.h"

namespace pare::quant {

LadderTable::LadderTable(const GridFormat& format) : format_(format) {
  const FormatInfo& info = format_info(format.codes);
  ladder_.integer = info.is_integer();
  ladder_.low = static_cast<float>(format.lowest_code());
  ladder_.high = static_cast<float>(format.largest_code());
  if (ladder_.integer) return;
  ladder_.mantissa = info.mantissa_bits;
  ladder_.normal = static_cast<float>(info.smallest_normal);
  ladder_.code_shift = (126 + std::ilogb(info.smallest_normal)) << info.mantissa_bits;
  for (int code = 0; code < 1 << info.bits; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    float level = 0;
    info.decode(&byte, &level, 1);
    if (std::isfinite(level) && !(level == 0 && std::signbit(level))) levels_.push_back(level);
  }
  std::sort(levels_.begin(), levels_.end());
  ladder_.levels = levels_.data();
  ladder_.count = static_cast<int>(levels_.size());
  ladder_.middle = ladder_.count / 2;
}

void LadderTable::codes(const float* levels, const float* zeros, std::int64_t n, std::uint8_t* codes) const {
  const FormatInfo& info = format_info(format_.codes);
  if (ladder_.integer) {
    const auto mask = static_cast<std::uint8_t>((1u << std::min(info.bits, 8)) - 1);
    for (std::int64_t i = 0; i < n; ++i) {
      const float code = levels[i] + (zeros == nullptr ? 0.0f : zeros[i]);
      codes[i] = static_cast<std::uint8_t>(static_cast<int>(code)) & mask;
    }
    return;
  }
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(packed_bytes(info.bits, n)));
  pare::encode(format_.codes, levels, packed.data(), n);
  unpack_codes(info.bits, packed.data(), codes, n);
}

}  // namespace pare::quant

// The Ladder of a format, with the memory behind it.
#pragma once

#include <vector>

#include "quant/grid/grid.h"
#include "quant/grid/ladder.h"

namespace pare::quant {

class LadderTable {
 public:
  explicit LadderTable(const GridFormat& format);
  LadderTable(const LadderTable&) = delete;
  LadderTable& operator=(const LadderTable&) = delete;

  const Ladder& get() const { return ladder_; }
  // One code a byte, of levels that are on the ladder; `zeros` null: all zero.
  void codes(const float* levels, const float* zeros, std::int64_t n, std::uint8_t* codes) const;

 private:
  GridFormat format_;
  Ladder ladder_;
  std::vector<float> levels_;
};

}  // namespace pare::quant

// uint8 codes whose scale and zero point each row of an axis makes at run time, in standard operators:
//
//   h = max(ReduceMax(x), 0), l = min(ReduceMin(x), 0)     of the row
//   s = max((h - l) / 255, 2^-126)
//   z = Cast(Round(-l / s)), in 0 ... 255
//   code  QuantizeLinear(x, s, z; axis, block_size = the row), opset 21
//
// A row that lies on one side of zero has twice the codes that symmetric ones give it. NaN makes the row's
// scale NaN, and so all that it dequantizes to. Source: DynamicQuantizeLinear-11, row by row.
#pragma once

#include "engine/ir/block_scales.h"

namespace pare {

struct TokenCodes {
  ValueId codes = ValueId::kNone;  // uint8
  ValueId scale = ValueId::kNone;  // float32, size 1 along the axis
  ValueId zero = ValueId::kNone;   // uint8, of that shape
  Attributes attributes;           // of the DequantizeLinear behind them
};

// `x` is float32; its rank and the size along `axis` are known (else Error kUnsupported).
TokenCodes write_token_quantize(OpWriter& writer, ValueId x, const Shape& shape, std::int64_t axis);

}  // namespace pare

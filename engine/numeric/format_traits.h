// Host only, internal to engine/numeric: each format as a type, so that one loop template serves all of them.
//   Code      the unsigned integer that holds one unpacked code (in its low kBits)
//   encode, decode         the scalar functions of the format's header
//   encode_unsaturated     where ONNX has a saturate attribute; otherwise the same as encode
#pragma once

#include <type_traits>

#include "engine/base/dtype.h"
#include "engine/numeric/bf16.h"
#include "engine/numeric/e2m1.h"
#include "engine/numeric/e4m3.h"
#include "engine/numeric/e5m2.h"
#include "engine/numeric/e8m0.h"
#include "engine/numeric/f16.h"
#include "engine/numeric/integers.h"

namespace pare::traits {

#define PARE_FLOAT_TRAITS(Name, dtype, bits, CodeType, encode_fn, encode_raw_fn, decode_fn)                 \
  struct Name {                                                                                             \
    using Code = CodeType;                                                                                  \
    static constexpr DType kType = dtype;                                                                   \
    static constexpr int kBits = bits;                                                                      \
    static constexpr bool kIsFloat = std::is_same_v<decltype(decode_fn(Code{})), float>;                    \
    PARE_HD static Code encode(float value) { return static_cast<Code>(encode_fn(value)); }                 \
    PARE_HD static Code encode_unsaturated(float value) { return static_cast<Code>(encode_raw_fn(value)); } \
    PARE_HD static float decode(Code code) { return static_cast<float>(decode_fn(code)); }                  \
  }

PARE_HD std::uint8_t e8m0_saturated(float value) { return encode_e8m0(value, E8m0Round::kUp, true); }
PARE_HD std::uint8_t e8m0_unsaturated(float value) { return encode_e8m0(value, E8m0Round::kUp, false); }

PARE_FLOAT_TRAITS(F16, DType::kF16, 16, std::uint16_t, encode_f16, encode_f16, decode_f16);
PARE_FLOAT_TRAITS(BF16, DType::kBF16, 16, std::uint16_t, encode_bf16, encode_bf16, decode_bf16);
PARE_FLOAT_TRAITS(E4M3, DType::kE4M3FN, 8, std::uint8_t, encode_e4m3, encode_e4m3_unsaturated, decode_e4m3);
PARE_FLOAT_TRAITS(E4M3Fnuz, DType::kE4M3FNUZ, 8, std::uint8_t, encode_e4m3fnuz, encode_e4m3fnuz_unsaturated,
                  decode_e4m3fnuz);
PARE_FLOAT_TRAITS(E5M2, DType::kE5M2, 8, std::uint8_t, encode_e5m2, encode_e5m2_unsaturated, decode_e5m2);
PARE_FLOAT_TRAITS(E5M2Fnuz, DType::kE5M2FNUZ, 8, std::uint8_t, encode_e5m2fnuz, encode_e5m2fnuz_unsaturated,
                  decode_e5m2fnuz);
PARE_FLOAT_TRAITS(E2M1, DType::kE2M1, 4, std::uint8_t, encode_e2m1, encode_e2m1, decode_e2m1);
PARE_FLOAT_TRAITS(E8M0, DType::kE8M0, 8, std::uint8_t, e8m0_saturated, e8m0_unsaturated, decode_e8m0);

#define PARE_INTEGER_TRAITS(Name, dtype, bits, is_signed, CodeType)                 \
  PARE_FLOAT_TRAITS(Name, dtype, bits, CodeType, (encode_integer<bits, is_signed>), \
                    (encode_integer<bits, is_signed>), (decode_integer<bits, is_signed>))

PARE_INTEGER_TRAITS(I16, DType::kI16, 16, true, std::uint16_t);
PARE_INTEGER_TRAITS(U16, DType::kU16, 16, false, std::uint16_t);
PARE_INTEGER_TRAITS(I8, DType::kI8, 8, true, std::uint8_t);
PARE_INTEGER_TRAITS(U8, DType::kU8, 8, false, std::uint8_t);
PARE_INTEGER_TRAITS(I4, DType::kI4, 4, true, std::uint8_t);
PARE_INTEGER_TRAITS(U4, DType::kU4, 4, false, std::uint8_t);
PARE_INTEGER_TRAITS(I2, DType::kI2, 2, true, std::uint8_t);
PARE_INTEGER_TRAITS(U2, DType::kU2, 2, false, std::uint8_t);

#undef PARE_INTEGER_TRAITS
#undef PARE_FLOAT_TRAITS

}  // namespace pare::traits

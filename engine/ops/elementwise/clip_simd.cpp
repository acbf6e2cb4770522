#include "engine/ops/elementwise/clip.h"
#include "engine/ops/vector_math.h"

namespace pare::PARE_SIMD {

void clip_f32(const float* x, float lo, float hi, float* y, std::int64_t n) {
  const F32 least = F32::set(lo), most = F32::set(hi);
  transform(x, y, n, [=](F32 v) { return clip(v, least, most); });
}

}  // namespace pare::PARE_SIMD

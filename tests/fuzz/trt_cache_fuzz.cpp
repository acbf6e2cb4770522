// The reader of TensorRT calibration caches: any bytes give a cache or kBadFile; a cache is written and read
// again as the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "calib/trt_cache.h"
#include "engine/base/error.h"
#include "tests/fuzz/blame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    const pare::TrtCache cache = pare::parse_trt_cache({reinterpret_cast<const char*>(bytes), size});
    if (!(pare::parse_trt_cache(pare::trt_cache_text(cache)) == cache)) std::abort();
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error, {pare::ErrorCode::kBadFile});
  }
  return 0;
}

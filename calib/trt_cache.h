// TensorRT's calibration cache: a text file with one INT8 scale for a tensor.
//
//   TRT-8601-EntropyCalibration2            what wrote it, and by which method
//   input: 3c010a14                         name, ": ", the bits of a float32 as eight hexadecimal digits
//
// The number is scale = amax / 127 (3c010a14 is .00787594). A name may hold ": " itself: the last one counts.
// From TensorRT 11 on nothing reads such a file but tools; turned into Q/DQ its scales live on.
// Source: the cache files of TensorRT 7 to 10; readers and writers compared in NVIDIA's and ONNX Runtime's
// tools.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "calib/statistics.h"

namespace pare {

inline constexpr const char* kTrtCacheHeader = "TRT-8601-EntropyCalibration2";

struct TrtCacheEntry {
  std::string tensor;
  float scale = 0;  // >= 0, finite; 0: nothing but zeros was seen

  friend bool operator==(const TrtCacheEntry&, const TrtCacheEntry&) = default;
};

struct TrtCache {
  std::string header = kTrtCacheHeader;
  std::vector<TrtCacheEntry> entries;  // as they stand in the file

  const TrtCacheEntry* find(const std::string& tensor) const;
  friend bool operator==(const TrtCache&, const TrtCache&) = default;
};

// Whether a file begins as a cache does: with "TRT-". False when it cannot be read.
bool is_trt_cache(const std::string& path);

// Lines end with LF or CR LF; empty ones are skipped. Error kBadFile with the line: a header that is none, no
// ": ", no name, no eight hexadecimal digits, NaN, infinity, a negative number (-0 too), a name for the
// second time.
TrtCache parse_trt_cache(std::string_view text);
TrtCache load_trt_cache(const std::string& path);

// Error kUsage for a name with a line break and a header that parse_trt_cache refuses. parse_trt_cache gives
// back what was written, every bit.
std::string trt_cache_text(const TrtCache& cache);
void save_trt_cache(const TrtCache& cache, const std::string& path);  // atomically

// The scales of a method (ranges.h) for symmetric int8: max(|low|, |high|) / 127 of each tensor, rounded to
// float32; 0 for one of zeros. Tensors that were never seen or had no finite value are left out and their
// names go to `left_out`.
TrtCache trt_cache_from(const Statistics& statistics, const std::string& method,
                        std::vector<std::string>* left_out = nullptr);

}  // namespace pare

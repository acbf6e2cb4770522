#include "calib/trt_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_set>

#include "calib/ranges.h"
#include "engine/base/atomic_file.h"
#include "engine/base/byte_reader.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"

namespace pare {
namespace {

constexpr std::string_view kMark = "TRT-";

[[noreturn]] void refuse(std::size_t line, const std::string& what) {
  throw make_error(ErrorCode::kBadFile, "line {} of the calibration cache: {}", line, what)
      .hint("a line is `name: 3c010a14`, the bits of a float32 scale above zero; TensorRT writes such files");
}

bool parse_hex(std::string_view digits, std::uint32_t& code) {
  if (digits.size() != 8) return false;
  code = 0;
  for (const char c : digits) {
    const int value = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (value < 0) return false;
    code = code << 4 | static_cast<std::uint32_t>(value);
  }
  return true;
}

bool is_header(std::string_view line) {
  return line.size() > kMark.size() && line.substr(0, kMark.size()) == kMark &&
         line.find_first_of("\r\n") == std::string_view::npos;
}

TrtCacheEntry parse_line(std::string_view line, std::size_t number) {
  const std::size_t colon = line.rfind(": ");
  if (colon == std::string_view::npos) refuse(number, "it has no ': '");
  if (colon == 0) refuse(number, "it has no name");
  check_limit(colon, limits::kMaxNameBytes, "a name's length");
  TrtCacheEntry entry;
  entry.tensor = std::string(line.substr(0, colon));
  if (entry.tensor.find('\r') != std::string::npos) refuse(number, "its name holds a carriage return");
  std::uint32_t code = 0;
  if (!parse_hex(line.substr(colon + 2), code))
    refuse(number, fmt::format("the scale of '{}' is not eight hexadecimal digits", entry.tensor));
  entry.scale = std::bit_cast<float>(code);
  if (std::isnan(entry.scale)) refuse(number, fmt::format("the scale of '{}' is NaN", entry.tensor));
  if (std::isinf(entry.scale)) refuse(number, fmt::format("the scale of '{}' is infinite", entry.tensor));
  if (std::signbit(entry.scale))
    refuse(number, fmt::format("the scale of '{}' is negative ({})", entry.tensor, entry.scale));
  return entry;
}

}  // namespace

const TrtCacheEntry* TrtCache::find(const std::string& tensor) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const TrtCacheEntry& entry) { return entry.tensor == tensor; });
  return found == entries.end() ? nullptr : &*found;
}

bool is_trt_cache(const std::string& path) try {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return text.substr(0, kMark.size()) == kMark;
} catch (const Error&) {
  return false;
}

TrtCache parse_trt_cache(std::string_view text) {
  TrtCache cache;
  cache.header.clear();
  std::unordered_set<std::string> names;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (number == 1) {
      if (!is_header(line)) refuse(1, "it does not begin with 'TRT-'");
      cache.header = std::string(line);
      continue;
    }
    if (line.empty()) continue;
    TrtCacheEntry entry = parse_line(line, number);
    if (!names.insert(entry.tensor).second)
      refuse(number, fmt::format("'{}' has a scale already", entry.tensor));
    cache.entries.push_back(std::move(entry));
  }
  if (number == 0) refuse(1, "the file is empty");
  return cache;
}

TrtCache load_trt_cache(const std::string& path) try {
  const MappedFile file(path);
  check_limit(file.bytes().size(), limits::kMaxTableBytes, "the file's length");
  return parse_trt_cache({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
} catch (Error& error) {
  error.at(path);
  throw;
}

std::string trt_cache_text(const TrtCache& cache) {
  if (!is_header(cache.header))
    throw make_error(ErrorCode::kUsage, "'{}' is no header of a calibration cache", cache.header)
        .hint(std::string("for example ") + kTrtCacheHeader);
  std::string text = cache.header + "\n";
  for (const TrtCacheEntry& entry : cache.entries) {
    if (entry.tensor.empty() || entry.tensor.find_first_of("\r\n") != std::string::npos)
      throw make_error(ErrorCode::kUsage, "a calibration cache cannot hold the name '{}'", entry.tensor)
          .hint("rename the tensor: `pare surgeon rename --value OLD=NEW`");
    PARE_ASSERT(entry.scale >= 0 && std::isfinite(entry.scale));
    text += fmt::format("{}: {:08x}\n", entry.tensor, std::bit_cast<std::uint32_t>(entry.scale));
  }
  return text;
}

void save_trt_cache(const TrtCache& cache, const std::string& path) {
  write_file_atomically(path, trt_cache_text(cache));
}

TrtCache trt_cache_from(const Statistics& statistics, const std::string& method,
                        std::vector<std::string>* left_out) {
  TrtCache cache;
  for (const TensorStats& stats : statistics.tensors) {
    if (!stats.seen() || stats.finite() == 0) {
      if (left_out != nullptr) left_out->push_back(stats.name);
      continue;
    }
    const RangeChoice range = range_by_method(stats, RangeTarget{}, method);
    const double amax = std::max(-static_cast<double>(range.low), static_cast<double>(range.high));
    cache.entries.push_back({stats.name, static_cast<float>(amax / symmetric_largest(DType::kI8)) + 0.0f});
  }
  return cache;
}

}  // namespace pare

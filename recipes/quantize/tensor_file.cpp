#include "recipes/quantize/tensor_file.h"

#include <string_view>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"

namespace pare {
namespace {

constexpr std::size_t kAlign = 64;

}  // namespace

std::size_t next_offset(std::size_t offset) { return (offset + kAlign - 1) / kAlign * kAlign; }

std::string header_line(std::string text) {
  text.append(next_offset(text.size() + 1) - text.size() - 1, ' ');
  return text + "\n";
}

void append_tensor(AtomicFile& file, const Tensor& tensor, std::size_t& offset) {
  file.write(std::string(next_offset(offset) - offset, '\0'));
  file.write(tensor.byte_span());
  offset = next_offset(offset) + static_cast<std::size_t>(tensor.bytes());
}

TensorFile::TensorFile(const std::string& path, Json& header) : file(path) {
  const std::string_view text(static_cast<const char*>(static_cast<const void*>(file.bytes().data())),
                              file.bytes().size());
  const std::size_t end = text.substr(0, limits::kMaxJsonBytes).find('\n');
  if (end == std::string_view::npos) fail(ErrorCode::kBadFile, "no header");
  header = parse_json(text.substr(0, end), path);
  begin = end + 1;
}

Tensor TensorFile::at(const Json& json) const {
  const std::string& path = file.path();
  const DType dtype = stored_type(json, path);
  Dims dims = stored_dims(json, path);
  const auto offset = static_cast<std::size_t>(json_int(json, "offset", path));
  const auto size = static_cast<std::size_t>(byte_count(dtype, dims));
  const std::size_t bytes = file.bytes().size() - begin;
  if (offset % kAlign != 0 || offset > bytes || size > bytes - offset)
    fail(ErrorCode::kBadFile, "a tensor goes beyond its file");
  return Tensor::share(dtype, std::move(dims), file.bytes().data() + begin + offset, file.owner());
}

DType stored_type(const Json& json, const std::string& path) {
  DType dtype = DType::kUndefined;
  if (!dtype_from_name(json_string(json, "dtype", path), dtype) || dtype == DType::kString)
    fail(ErrorCode::kBadFile, "an unknown type");
  return dtype;
}

Dims stored_dims(const Json& json, const std::string& path) {
  Dims dims;
  for (const Json& size : json_array(json, "dims", path)) dims.push_back(size.get<std::int64_t>());
  return dims;
}

}  // namespace pare

#include "datasets/labels.h"

#include <charconv>
#include <cstring>
#include <map>

#include "datasets/npy.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/mapped_file.h"
#include "engine/base/paths.h"

namespace pare {

namespace {

std::vector<std::int64_t> from_tensor(const Tensor& tensor, const std::string& what) {
  if (!is_integer(tensor.dtype()) && tensor.dtype() != DType::kBool)
    throw make_error(ErrorCode::kUsage, "labels '{}' are {}, not integers", what, name(tensor.dtype()))
        .hint("labels are class numbers: save labels.astype('int64')");
  std::int64_t per_sample = 1;
  for (std::size_t d = 1; d < tensor.dims().size(); ++d) per_sample *= tensor.dims()[d];
  if (tensor.dims().empty() || per_sample != 1)
    throw make_error(ErrorCode::kUsage, "labels '{}' have the shape {}, not one number a sample", what,
                     to_string(tensor.dims()))
        .hint("one-hot labels: save numpy.argmax(labels, axis=1)");
  return tensor.to_ints();
}

bool parse_label(const std::string& text, std::int64_t& label) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), label);
  return !text.empty() && result.ec == std::errc() && result.ptr == text.data() + text.size();
}

std::string unquoted(std::string field) {
  while (!field.empty() && (field.back() == ' ' || field.back() == '\r')) field.pop_back();
  while (!field.empty() && field.front() == ' ') field.erase(0, 1);
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"')
    field = field.substr(1, field.size() - 2);
  return field;
}

struct Line {
  std::string name;
  std::int64_t label;
};

std::vector<Line> read_csv(const std::string& path) {
  const std::string text = read_text_file(path, limits::kMaxTableBytes);
  std::vector<Line> lines;
  std::size_t at = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  for (std::int64_t number = 1; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const std::size_t comma = line.rfind(',');
    Line entry{comma == std::string::npos ? "" : unquoted(line.substr(0, comma)), 0};
    const std::string label = unquoted(comma == std::string::npos ? line : line.substr(comma + 1));
    if (label.empty() && entry.name.empty()) continue;
    if (!parse_label(label, entry.label)) {
      if (number == 1) continue;  // a header
      throw make_error(ErrorCode::kBadFile, "'{}' is no class number", label)
          .at(fmt::format("{}:{}", path, number))
          .hint("lines are name,label with the label as an integer");
    }
    lines.push_back(std::move(entry));
  }
  return lines;
}

std::vector<std::int64_t> by_name(const std::vector<Line>& lines, const Source& source,
                                  const std::string& path) {
  std::map<std::string, std::int64_t> labels;
  for (const Line& line : lines)
    if (!labels.emplace(line.name, line.label).second)
      throw make_error(ErrorCode::kBadFile, "{}: '{}' has two labels", path, line.name)
          .hint("keep one of the lines");
  std::vector<std::int64_t> result;
  for (std::int64_t row = 0; row < source.count(); ++row) {
    const auto found = labels.find(source.row_name(row));
    if (found == labels.end())
      throw make_error(ErrorCode::kUsage, "'{}' has no label in {}", source.row_name(row), path)
          .hint("names in the table are paths below the image folder");
    result.push_back(found->second);
  }
  return result;
}

Labels from_json(const std::string& path, const std::string& key) {
  const Json whole = read_json_file(path);
  const Json& list = json_array(whole, key.c_str(), path);
  Labels result;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Json& item = list[i];
    if (item.is_string() && result.numbers.empty())
      result.texts.push_back(item.get<std::string>());
    else if (item.is_number_integer() && result.texts.empty())
      result.numbers.push_back(item.get<std::int64_t>());
    else
      throw make_error(ErrorCode::kBadFile, "{}: item {} of '{}' is {}", path, i, key,
                       item.is_string() || item.is_number_integer() ? "of another kind than those before"
                                                                    : "neither a text nor an integer")
          .hint("a list of texts, or a list of integers");
  }
  return result;
}

std::vector<std::int64_t> numbers_of(const std::string& labels, const Source& source) {
  std::vector<std::int64_t> result;
  int column = -1;
  for (std::size_t c = 0; c < source.columns().size(); ++c)
    if (source.columns()[c].name == labels) column = static_cast<int>(c);
  if (column >= 0) {
    const Source::Column& c = source.columns()[static_cast<std::size_t>(column)];
    Dims dims = c.sample;
    dims.insert(dims.begin(), source.count());
    Tensor tensor = Tensor::allocate(c.dtype, dims);
    std::vector<std::int64_t> rows(static_cast<std::size_t>(source.count()));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
    source.gather(column, rows, tensor.mut<std::byte>(), nullptr);
    result = from_tensor(tensor, labels);
  } else if (file_extension(labels) == ".csv") {
    const std::vector<Line> lines = read_csv(labels);
    const bool named =
        !lines.empty() && !lines.front().name.empty() && source.count() > 0 && !source.row_name(0).empty();
    if (named) return by_name(lines, source, labels);
    for (const Line& line : lines) result.push_back(line.label);
  } else {
    result = from_tensor(read_npy(labels), labels);
  }
  return result;
}

}  // namespace

std::vector<std::string> read_lines(const std::string& path) {
  const std::string text = read_text_file(path, limits::kMaxTableBytes);
  std::vector<std::string> lines;
  for (std::size_t at = text.starts_with("\xEF\xBB\xBF") ? 3 : 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (!lines.back().empty() && lines.back().back() == '\r') lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

Labels load_labels(const std::string& labels, const Source& source) {
  Labels result;
  std::string file, key;
  if (split_file_key(labels, file, key))
    result = from_json(file, key);
  else if (file_extension(labels) == ".txt")
    result.texts = read_lines(labels);
  else
    result.numbers = numbers_of(labels, source);
  const std::size_t count = std::max(result.numbers.size(), result.texts.size());
  if (static_cast<std::int64_t>(count) != source.count())
    throw make_error(ErrorCode::kUsage, "there are {} labels in '{}', but {} samples", count, labels,
                     source.count())
        .hint("labels belong to the samples one by one, in the same order");
  return result;
}

}  // namespace pare

#include "eval/task/ctc.h"

#include <algorithm>
#include <cmath>

#include "datasets/labels.h"
#include "engine/base/error.h"

namespace pare {

CtcText::CtcText(const DatasetSpec& spec)
    : lines_(read_lines(spec.alphabet)),
      blank_(spec.blank.value_or(0)),
      ignore_spaces_(spec.ignore_spaces.value_or(false)) {
  if (lines_.empty())
    throw make_error(ErrorCode::kUsage, "the alphabet '{}' is empty", spec.alphabet)
        .hint("one character a line, in the order of the classes");
}

std::string CtcText::decode(const float* steps, std::int64_t count, std::int64_t classes) const {
  const auto lines = static_cast<std::int64_t>(lines_.size());
  std::string text;
  std::int64_t before = -1;
  for (std::int64_t t = 0; t < count; ++t) {
    const float* row = steps + t * classes;
    std::int64_t best = -1;
    for (std::int64_t c = 0; c < classes; ++c)
      if (!std::isnan(row[c]) && (best < 0 || row[c] > row[best])) best = c;
    if (best < 0) best = blank_;
    if (best != before && best != blank_) {
      const std::int64_t line = classes == lines || best < blank_ ? best : best - 1;
      text += line < lines ? lines_[static_cast<std::size_t>(line)] : " ";
    }
    before = best;
  }
  return text;
}

void CtcText::add(const TensorView& outputs, const std::vector<std::string>& texts) {
  const auto n = static_cast<std::int64_t>(texts.size()), lines = static_cast<std::int64_t>(lines_.size());
  if (outputs.dims.size() != 3 || outputs.dims[0] != n)
    throw make_error(ErrorCode::kUsage,
                     "cer wants an output [samples,steps,classes], but the first one is {}",
                     to_string(outputs.dims))
        .hint("of several outputs the first one must be the text");
  const std::int64_t steps = outputs.dims[1], classes = outputs.dims[2];
  if (classes < lines || classes > lines + 2 || blank_ >= classes)
    throw make_error(ErrorCode::kUsage, "the model has {} classes, but the alphabet has {} characters",
                     classes, lines)
        .hint("classes are the characters, the blank and, where it is one more, a space");
  const auto characters_of = [&](const std::string& text) {
    std::vector<std::uint32_t> points = code_points(text);
    if (ignore_spaces_) points.erase(std::remove(points.begin(), points.end(), 0x20u), points.end());
    return points;
  };
  for (std::int64_t i = 0; i < n; ++i) {
    const auto wanted = characters_of(texts[static_cast<std::size_t>(i)]);
    const auto got = characters_of(decode(outputs.as<float>() + i * steps * classes, steps, classes));
    errors_ += edit_distance(wanted, got);
    characters_ += static_cast<std::int64_t>(wanted.size());
  }
}

double CtcText::rate() const {
  return characters_ == 0 ? std::nan("") : static_cast<double>(errors_) / static_cast<double>(characters_);
}

std::vector<std::uint32_t> code_points(const std::string& text) {
  std::vector<std::uint32_t> points;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80       ? 1
                               : lead >> 5 == 6  ? 2
                               : lead >> 4 == 14 ? 3
                               : lead >> 3 == 30 ? 4
                                                 : 0;
    bool whole = length > 0 && i + length <= text.size();
    std::uint32_t point = length > 1 ? lead & (0xFFu >> (length + 1)) : lead;
    for (std::size_t k = 1; whole && k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      whole = next >> 6 == 2;
      point = point << 6 | (next & 0x3Fu);
    }
    points.push_back(whole ? point : 0xDC00u + lead);
    i += whole ? length : 1;
  }
  return points;
}

std::int64_t edit_distance(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  std::vector<std::int64_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<std::int64_t>(j);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::int64_t diagonal = row[0];
    row[0] = static_cast<std::int64_t>(i) + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::int64_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace pare

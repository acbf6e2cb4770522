#include "engine/ops/features/strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/unicode.h"
#include "engine/numeric/convert.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/features/regex.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::string strings_reason(const OpCall& call) {
  for (int i = 0; i < static_cast<int>(call.in.size()); ++i)
    if (std::string reason = type_reason(call, i, {DType::kString}); !reason.empty()) return reason;
  return {};
}

void run_concat(const OpCall& call) {
  const Dims* dims[] = {&call.in[0].dims, &call.in[1].dims};
  const BroadcastPlan plan = plan_broadcast(call.out[0].dims, dims, 2);
  const auto *a = call.in[0].as<std::string>(), *b = call.in[1].as<std::string>();
  auto* y = call.out[0].mut<std::string>();
  for_each_row(plan, 0, plan.count, [&](std::int64_t at, const auto& offset, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      y[at + i] = a[offset[0] + (plan.repeats(0) ? 0 : i)] + b[offset[1] + (plan.repeats(1) ? 0 : i)];
  });
}

// --- splitting

using Pieces = std::vector<std::string>;

Pieces split_at(std::string_view text, std::string_view delimiter, std::int64_t most) {
  Pieces pieces;
  while (static_cast<std::int64_t>(pieces.size()) < most) {
    const std::size_t at = text.find(delimiter);
    if (at == std::string_view::npos) break;
    pieces.emplace_back(text.substr(0, at));
    text.remove_prefix(at + delimiter.size());
  }
  pieces.emplace_back(text);
  return pieces;
}

Pieces split_at_space(std::string_view text, std::int64_t most) {
  Pieces pieces;
  for (;;) {
    while (!text.empty()) {  // leading white space
      std::string_view rest = text;
      if (!is_white_space(take_character(rest))) break;
      text = rest;
    }
    if (text.empty()) return pieces;
    if (static_cast<std::int64_t>(pieces.size()) == most) {
      pieces.emplace_back(text);  // Python's split keeps what trails
      return pieces;
    }
    std::string_view rest = text;
    std::size_t length = 0;
    while (!rest.empty()) {
      std::string_view next = rest;
      if (is_white_space(take_character(next))) break;
      length += rest.size() - next.size();
      rest = next;
    }
    pieces.emplace_back(text.substr(0, length));
    text = rest;
  }
}

void run_split(const OpCall& call) {
  const TensorView& x = call.in[0];
  const std::string delimiter = call.node->attr("delimiter", "");
  const std::int64_t wanted = call.node->attr("maxsplit", std::int64_t{-1});
  const std::int64_t most = wanted < 0 ? INT64_MAX : wanted, count = x.size();
  std::vector<Pieces> lists;
  std::size_t longest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string& text = x.as<std::string>()[i];
    lists.push_back(delimiter.empty() ? split_at_space(text, most) : split_at(text, delimiter, most));
    longest = std::max(longest, lists.back().size());
  }
  if (call.wants(0)) {
    Dims dims = x.dims;
    dims.push_back(static_cast<std::int64_t>(longest));
    auto* y = call.allocate(0, dims).mut<std::string>();
    for (std::size_t i = 0; i < lists.size(); ++i)
      for (std::size_t k = 0; k < longest; ++k)
        y[i * longest + k] = k < lists[i].size() ? std::move(lists[i][k]) : std::string();
  }
  if (call.wants(1))
    for (std::int64_t i = 0; i < count; ++i)
      call.out[1].mut<std::int64_t>()[i] =
          static_cast<std::int64_t>(lists[static_cast<std::size_t>(i)].size());
}

// --- normalizing

std::string in_case(std::string_view text, bool lower) {
  std::string out;
  while (!text.empty()) {
    const std::string_view before = text;
    const char32_t c = take_character(text);
    if (c == kReplacement)  // maybe a byte that is no UTF-8: left as it is
      out += before.substr(0, before.size() - text.size());
    else
      append_utf8(out, lower ? lower_case(c) : upper_case(c));
  }
  return out;
}

std::string normalizer_reason(const OpCall& call) {
  const Dims& dims = call.input(0).dims;
  if (dims.size() != 1 && !(dims.size() == 2 && dims[0] == 1)) return "the input is neither [C] nor [1, C]";
  const std::string action = call.node->attr("case_change_action", "NONE");
  if (action != "NONE" && action != "LOWER" && action != "UPPER") return "case_change_action is " + action;
  return strings_reason(call);
}

void run_normalizer(const OpCall& call) {
  const TensorView& x = call.in[0];
  const std::string action = call.node->attr("case_change_action", "NONE");
  const bool exact = call.node->attr("is_case_sensitive", std::int64_t{0}) != 0;
  Pieces stop;
  const auto given = call.node->attrs.find("stopwords");
  if (given != call.node->attrs.end())
    if (const auto* words = std::get_if<Pieces>(&given->second)) stop = *words;
  if (!exact)
    for (std::string& word : stop) word = in_case(word, true);
  std::sort(stop.begin(), stop.end());
  Pieces kept;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::string& word = x.as<std::string>()[i];
    if (std::binary_search(stop.begin(), stop.end(), exact ? word : in_case(word, true))) continue;
    kept.push_back(action == "NONE" ? word : in_case(word, action == "LOWER"));
  }
  if (kept.empty()) kept.emplace_back();
  Dims dims = x.dims;
  dims.back() = static_cast<std::int64_t>(kept.size());
  std::move(kept.begin(), kept.end(), call.allocate(0, dims).mut<std::string>());
}

void run_regex(const OpCall& call) {
  const Regex regex(call.node->attr("pattern", ""));
  for (std::int64_t i = 0; i < call.in[0].size(); ++i)
    call.out[0].mut<std::uint8_t>()[i] =
        static_cast<std::uint8_t>(regex.matches(call.in[0].as<std::string>()[i]));
}

// --- casts

std::string text_of(double value, bool small) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "INF" : "-INF";
  return small ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
}

std::string to_string_reason(const OpCall& call) {
  if (call.out[0].dtype != DType::kString) return "the output is no string";
  return call.input(0).dtype == DType::kString ? "the input is a string" : "";
}

void run_to_string(const OpCall& call) {
  const TensorView& x = call.in[0];
  auto* y = call.out[0].mut<std::string>();
  const bool whole = is_integer(x.dtype) || x.dtype == DType::kBool;
  if (x.dtype == DType::kU64) {
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = fmt::format("{}", x.as<std::uint64_t>()[i]);
    return;
  }
  Tensor wide = Tensor::allocate(whole ? DType::kI64 : DType::kF64, x.dims);
  convert(x, {wide.dtype(), x.dims, wide.mut<std::byte>()});
  for (std::int64_t i = 0; i < x.size(); ++i)
    y[i] = whole ? fmt::format("{}", wide.as<std::int64_t>()[i])
                 : text_of(wide.as<double>()[i], x.dtype != DType::kF64);
}

std::string from_string_reason(const OpCall& call) {
  if (call.input(0).dtype != DType::kString) return "the input is no string";
  return call.out[0].dtype == DType::kString ? "the output is a string" : "";
}

[[noreturn]] void no_number(const std::string& text, DType type) {
  fail(ErrorCode::kBadFile, "the string '{}' is no {}", text.substr(0, 40), name(type));
}

void run_from_string(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const bool whole = is_integer(y.dtype);
  Tensor reals = Tensor::allocate(DType::kF64, x.dims), integers = Tensor::allocate(DType::kI64, x.dims);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::string& text = x.as<std::string>()[i];
    char* end = nullptr;
    errno = 0;
    // float32 text is rounded once, to float32.
    const double value = y.dtype == DType::kF32 ? static_cast<double>(std::strtof(text.c_str(), &end))
                                                : std::strtod(text.c_str(), &end);
    const bool space = !text.empty() && std::isspace(static_cast<unsigned char>(text[0])) != 0;
    if (text.empty() || space || end != text.c_str() + text.size()) no_number(text, y.dtype);
    reals.mut<double>()[i] = value;
    if (!whole) continue;
    errno = 0;
    const bool is_unsigned = y.dtype == DType::kU64;
    const long long exact = is_unsigned ? static_cast<long long>(std::strtoull(text.c_str(), &end, 10))
                                        : std::strtoll(text.c_str(), &end, 10);
    integers.mut<std::int64_t>()[i] = exact;
    if (end != text.c_str() + text.size() || errno == ERANGE) {
      // 1e3, 2.5: cut towards zero like any float
      Tensor one = Tensor::from(DType::kF64, {1}, std::vector<double>{value});
      convert(one.view(), {DType::kI64, {1}, integers.mut<std::int64_t>() + i});
    }
  }
  convert(whole ? integers.view() : reals.view(), y);
}

}  // namespace

void add_string_references(Registry& registry) {
  Kernel kernel;
  const auto add = [&](const char* op, const char* variant, std::string (*reason)(const OpCall&),
                       void (*run)(const OpCall&)) {
    kernel.op = op;
    kernel.name = kernel_name(op, variant);
    kernel.why_not = reason;
    kernel.run = run;
    kernel.allocates = run == run_split || run == run_normalizer;
    registry.add(kernel);
  };
  add("StringConcat", "reference", strings_reason, run_concat);
  add("StringSplit", "reference", strings_reason, run_split);
  add("StringNormalizer", "reference", normalizer_reason, run_normalizer);
  add("RegexFullMatch", "reference", strings_reason, run_regex);
  for (const char* op : {"Cast", "CastLike"}) {
    add(op, "to_string", to_string_reason, run_to_string);
    add(op, "from_string", from_string_reason, run_from_string);
  }
}

}  // namespace pare

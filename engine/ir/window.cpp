#include "engine/ir/window.h"

#include <algorithm>

#include "engine/base/error.h"

namespace pare {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // so that products of two stay in int64

[[noreturn]] void bad(const Node& node, const std::string& what) {
  throw make_error(ErrorCode::kBadFile, "{}: {}", node.op, what).at("node '" + node.name + "'");
}

std::vector<std::int64_t> sizes_attr(const Node& node, const char* key, std::size_t count,
                                     std::int64_t otherwise, std::int64_t least) {
  std::vector<std::int64_t> values = node.attr_ints(key);
  if (values.empty()) values.assign(count, otherwise);
  if (values.size() != count)
    bad(node, fmt::format("attribute {} has {} numbers, needs {}", key, values.size(), count));
  for (const std::int64_t value : values)
    if (value < least || value > kLargest)
      bad(node, fmt::format("attribute {} holds {}, outside [{}, 2^31]", key, value, least));
  return values;
}

AutoPad auto_pad_attr(const Node& node) {
  const std::string text = node.attr("auto_pad", "NOTSET");
  if (text == "NOTSET" || text.empty()) return AutoPad::kNotSet;
  if (text == "VALID") return AutoPad::kValid;
  if (text == "SAME_UPPER") return AutoPad::kSameUpper;
  if (text == "SAME_LOWER") return AutoPad::kSameLower;
  bad(node, "attribute auto_pad is '" + text + "', not NOTSET, VALID, SAME_UPPER or SAME_LOWER");
}

}  // namespace

Window read_window(const Node& node, std::vector<std::int64_t> kernel) {
  Window window;
  const std::vector<std::int64_t> declared = node.attr_ints("kernel_shape");
  if (kernel.empty()) kernel = declared;
  if (!declared.empty() && declared != kernel)
    bad(node, "attribute kernel_shape is " + to_string(declared) + ", the weight has " + to_string(kernel));
  for (const std::int64_t size : kernel)
    if (size < 1 || size > kLargest) bad(node, fmt::format("a kernel size is {}", size));
  const std::size_t axes = kernel.size();
  window.kernel = std::move(kernel);
  window.strides = sizes_attr(node, "strides", axes, 1, 1);
  window.dilations = sizes_attr(node, "dilations", axes, 1, 1);
  window.auto_pad = auto_pad_attr(node);
  window.ceil_mode = node.attr("ceil_mode", std::int64_t{0}) != 0;
  std::vector<std::int64_t> pads(2 * axes, 0);
  if (window.auto_pad == AutoPad::kNotSet) pads = sizes_attr(node, "pads", 2 * axes, 0, 0);
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(axes);
  window.pads_begin.assign(pads.begin(), middle);
  window.pads_end.assign(middle, pads.end());
  return window;
}

std::int64_t window_output(const Window& window, int axis, std::int64_t in) {
  const auto i = static_cast<std::size_t>(axis);
  const std::int64_t stride = window.strides[i];
  if (window.auto_pad == AutoPad::kSameUpper || window.auto_pad == AutoPad::kSameLower)
    return (in + stride - 1) / stride;
  const std::int64_t begin = window.pads_begin[i];
  const std::int64_t room = in + begin + window.pads_end[i] - window.extent(axis);
  if (room < 0) return 0;
  if (!window.ceil_mode) return room / stride + 1;
  const std::int64_t out = (room + stride - 1) / stride + 1;
  return (out - 1) * stride >= in + begin ? out - 1 : out;
}

void resolve_pads(Window& window, const std::vector<std::int64_t>& in) {
  PARE_ASSERT(in.size() == window.kernel.size());
  if (window.auto_pad == AutoPad::kSameUpper || window.auto_pad == AutoPad::kSameLower) {
    for (int axis = 0; axis < window.axes(); ++axis) {
      const auto i = static_cast<std::size_t>(axis);
      const std::int64_t out = window_output(window, axis, in[i]);
      const std::int64_t total =
          std::max<std::int64_t>(0, (out - 1) * window.strides[i] + window.extent(axis) - in[i]);
      const std::int64_t less = total / 2;
      window.pads_begin[i] = window.auto_pad == AutoPad::kSameUpper ? less : total - less;
      window.pads_end[i] = total - window.pads_begin[i];
    }
  }
  window.auto_pad = AutoPad::kNotSet;
}

}  // namespace pare

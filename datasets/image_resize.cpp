#include <algorithm>
#include <cmath>
#include <cstring>

#include "datasets/image.h"
#include "engine/base/error.h"

namespace pare {

namespace {

constexpr int kWeightBits = 22;  // 32 - 8 bits of a pixel - 2 for the sum

// Which input pixels make up each output pixel of one line, and how much of each.
struct Weights {
  std::vector<std::int64_t> first, count;
  std::vector<std::int32_t> weight;  // [outputs][most]
  std::int64_t most = 0;
};

Weights triangle_weights(std::int64_t in, std::int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double filter_scale = std::max(scale, 1.0);
  const double support = filter_scale;  // a triangle reaches one pixel to each side
  Weights w;
  w.most = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
  w.weight.assign(static_cast<std::size_t>(out * w.most), 0);
  std::vector<double> share(static_cast<std::size_t>(w.most));
  for (std::int64_t x = 0; x < out; ++x) {
    const double center = (static_cast<double>(x) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
    const auto last = std::min(in, static_cast<std::int64_t>(center + support + 0.5));
    double sum = 0;
    for (std::int64_t i = first; i < last; ++i) {
      const double distance = std::abs((static_cast<double>(i) - center + 0.5) / filter_scale);
      const double value = distance < 1 ? 1 - distance : 0;
      share[static_cast<std::size_t>(i - first)] = value;
      sum += value;
    }
    for (std::int64_t i = first; i < last; ++i) {
      const double value = share[static_cast<std::size_t>(i - first)] / (sum != 0 ? sum : 1);
      w.weight[static_cast<std::size_t>(x * w.most + i - first)] =
          static_cast<std::int32_t>(std::floor(value * (1 << kWeightBits) + 0.5));
    }
    w.first.push_back(first);
    w.count.push_back(last - first);
  }
  return w;
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

// Resizes the middle one of [outer, lines, inner].
void resize_lines(const std::uint8_t* in, std::uint8_t* out, std::int64_t outer, std::int64_t lines_in,
                  std::int64_t lines_out, std::int64_t inner) {
  const Weights w = triangle_weights(lines_in, lines_out);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(inner));
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t x = 0; x < lines_out; ++x) {
      std::fill(sums.begin(), sums.end(), 1 << (kWeightBits - 1));
      for (std::int64_t k = 0; k < w.count[static_cast<std::size_t>(x)]; ++k) {
        const std::int32_t weight = w.weight[static_cast<std::size_t>(x * w.most + k)];
        const std::uint8_t* line = in + (o * lines_in + w.first[static_cast<std::size_t>(x)] + k) * inner;
        for (std::int64_t i = 0; i < inner; ++i) sums[static_cast<std::size_t>(i)] += weight * line[i];
      }
      std::uint8_t* to = out + (o * lines_out + x) * inner;
      for (std::int64_t i = 0; i < inner; ++i) to[i] = to_byte(sums[static_cast<std::size_t>(i)]);
    }
}

}  // namespace

void resized_sides(const std::vector<std::int64_t>& resize, std::int64_t& height, std::int64_t& width) {
  if (resize.size() == 2) {
    height = resize[0];
    width = resize[1];
  } else if (resize.size() == 1) {
    const std::int64_t side = resize[0];
    if (height <= width) {
      width = side * width / height;
      height = side;
    } else {
      height = side * height / width;
      width = side;
    }
  }
}

Image resize_bilinear(const Image& image, std::int64_t height, std::int64_t width) {
  if (height == image.height && width == image.width) return image;
  Image wide{image.height, width, image.channels, {}};
  if (width == image.width) {
    wide.pixels = image.pixels;
  } else {
    wide.pixels.resize(static_cast<std::size_t>(image.height * width * image.channels));
    resize_lines(image.pixels.data(), wide.pixels.data(), image.height, image.width, width, image.channels);
  }
  if (height == image.height) return wide;
  Image result{height, width, image.channels, {}};
  result.pixels.resize(static_cast<std::size_t>(height * width * image.channels));
  resize_lines(wide.pixels.data(), result.pixels.data(), 1, wide.height, height, width * image.channels);
  return result;
}

Image crop_middle(const Image& image, std::int64_t height, std::int64_t width) {
  if (height > image.height || width > image.width)
    throw make_error(ErrorCode::kUsage, "crop={}x{} (height x width) of an image of {}x{}", height, width,
                     image.height, image.width)
        .hint("add resize=, so that every image is large enough");
  const auto middle = [](std::int64_t rest) {  // rest / 2, halves to even
    return rest / 2 + (rest % 2 == 1 && rest / 2 % 2 == 1 ? 1 : 0);
  };
  const std::int64_t top = middle(image.height - height), left = middle(image.width - width);
  Image result{height, width, image.channels, {}};
  const auto line = static_cast<std::size_t>(width * image.channels);
  result.pixels.resize(static_cast<std::size_t>(height) * line);
  for (std::int64_t y = 0; y < height; ++y)
    std::memcpy(
        result.pixels.data() + static_cast<std::size_t>(y) * line,
        image.pixels.data() + static_cast<std::size_t>(((top + y) * image.width + left) * image.channels),
        line);
  return result;
}

}  // namespace pare

#include "eval/report_plots.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "eval/report_render.h"

namespace pare {

std::string html_escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' ? '?' : c;
    }
  }
  return out;
}

namespace {

// Keeps the end of a long name, where the layer is told.
std::string shorten(const std::string& name, std::size_t longest) {
  if (name.size() <= longest) return name;
  std::size_t begin = name.size() - longest + 1;
  while (begin < name.size() && (static_cast<unsigned char>(name[begin]) & 0xC0) == 0x80) ++begin;
  return "…" + name.substr(begin);
}

constexpr int kWidth = 320, kHeight = 120;         // a histogram's plot area
constexpr int kLeft = 34, kTop = 6, kBottom = 18;  // around it

}  // namespace

std::string histogram_svg(const ReportHistogram& h) {
  const double begin = h.start, end = h.start + h.width * static_cast<double>(h.counts.size());
  const double span = end - begin > 0 ? end - begin : 1;
  std::int64_t largest = 1;
  for (std::int64_t count : h.counts) largest = std::max(largest, count);
  const double decades = std::max(1.0, std::ceil(std::log10(static_cast<double>(largest))));
  const auto x = [&](double value) { return kLeft + std::clamp((value - begin) / span, 0.0, 1.0) * kWidth; };
  const auto y = [&](double count) {
    const double level = count < 1 ? 0 : (std::log10(count) + 0.3) / (decades + 0.3);
    return kTop + kHeight * (1 - level);
  };
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"histogram of {}\">\n",
                                kLeft + kWidth + 6, kTop + kHeight + kBottom, html_escape(h.tensor));
  out += fmt::format("<rect class=\"range\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"/>\n",
                     x(h.low), kTop, std::max(1.0, x(h.high) - x(h.low)), kHeight);
  const int step = decades > 6 ? 2 : 1;
  for (int d = 0; d <= decades; d += step) {
    const double at = y(std::pow(10.0, d));
    out += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft,
                       kLeft + kWidth, at, at);
    if (d % (2 * step) == 0)
      out += fmt::format(
          "<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">10<tspan dy=\"-3\" "
          "font-size=\"7\">{}</tspan></text>\n",
          kLeft - 4, at + 3, d);
  }
  // One outline instead of a rectangle a bin: a tenth of the text.
  const double bin =
      static_cast<double>(kWidth) / static_cast<double>(std::max<std::size_t>(1, h.counts.size()));
  out += fmt::format("<path class=\"bars\" d=\"M{} {}", kLeft, kTop + kHeight);
  for (std::size_t i = 0; i < h.counts.size(); ++i)
    out += fmt::format("V{:.1f}H{:.1f}", y(static_cast<double>(h.counts[i])),
                       kLeft + bin * static_cast<double>(i + 1));
  out += fmt::format("V{}Z\"/>\n", kTop + kHeight);
  for (double edge : {h.low, h.high})
    out += fmt::format("<line class=\"edge\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>", x(edge),
                       x(edge), kTop, kTop + kHeight);
  const auto label = [&](double at, double value, const char* anchor) {
    return fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", at,
                       kTop + kHeight + 13, anchor, number_text_short(value));
  };
  out += label(kLeft, begin, "start") + label(kLeft + kWidth, end, "end");
  if (begin < 0 && end > 0) out += label(x(0), 0, "middle");
  return out + "</svg>";
}

std::string layer_bars_svg(const std::vector<ReportLayer>& layers) {
  constexpr int kRow = 15, kName = 270, kBars = 560, kRight = 60;
  double top = 20;
  for (const ReportLayer& layer : layers)
    if (std::isfinite(layer.sqnr_db)) top = std::max(top, layer.sqnr_db);
  top = std::ceil(top / 10) * 10;
  const int height = static_cast<int>(layers.size()) * kRow + 24;
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"SQNR by layer\">\n",
                                kName + kBars + kRight, height);
  for (int db = 0; db <= top; db += 10) {
    const double at = kName + kBars * db / top;
    out += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"0\" y2=\"{}\"/><text class=\"tick\" "
        "x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{} dB</text>\n",
        at, at, height - 18, at, height - 5, db);
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const ReportLayer& layer = layers[i];
    const int y = static_cast<int>(i) * kRow;
    const bool nan = std::isnan(layer.sqnr_db);
    const double share = nan ? 0 : std::clamp(layer.sqnr_db / top, 0.0, 1.0);
    const char* level = nan || layer.sqnr_db < 15 ? "bad" : layer.sqnr_db < 25 ? "fair" : "good";
    out += fmt::format(
        "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}<title>{} ({})</title></text>",
        kName - 8, y + 11, html_escape(shorten(layer.name, 42)), html_escape(layer.name),
        html_escape(layer.op));
    out += fmt::format("<rect class=\"bar {}\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\"/>",
                       level, kName, y + 2, std::max(1.0, share * kBars), kRow - 4);
    const std::string value = std::isfinite(layer.sqnr_db) ? fmt::format("{:.1f}", layer.sqnr_db)
                                                           : number_text_short(layer.sqnr_db);
    out += fmt::format("<text class=\"value\" x=\"{:.1f}\" y=\"{}\">{}</text>\n", kName + share * kBars + 5,
                       y + 11, value);
  }
  return out + "</svg>";
}

}  // namespace pare

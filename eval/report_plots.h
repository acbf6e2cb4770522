// The plots of the HTML report as inline SVG. Colours are CSS classes, so the page's light and dark themes
// apply. Text sizes are in the SVG's own units; the SVG scales with the page.
#pragma once

#include <string>
#include <vector>

#include "eval/report.h"

namespace pare {

// As text and attributes of HTML and XML have it. XML 1.0 allows no control characters but tab and newline,
// not even escaped: '?' stands for them.
std::string html_escape(const std::string& text);

// One calibrated tensor: counts on a logarithmic axis, the chosen range shaded, its ends marked.
std::string histogram_svg(const ReportHistogram& histogram);

// SQNR by layer, one horizontal bar each, in the order of the graph. Infinite (equal values) is a full bar.
std::string layer_bars_svg(const std::vector<ReportLayer>& layers);

}  // namespace pare

// A case of a pass: the graph before, and the one that it must reach.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "graphsurgeon/passes/passes.h"
#include "tests/unit/graphsurgeon/text_model.h"

namespace pare {

struct PassCase {
  const char* name;
  const Pass* pass;
  const char* before;
  const char* after;  // nullptr: stays as it is
};

inline void PrintTo(const PassCase& c, std::ostream* out) { *out << c.name; }

inline void expect_pass(const PassCase& c, int opset) {
  Graph graph = text_graph(opset, c.before);
  const std::string before = canonical_text(graph);
  const Pass* const list[] = {c.pass};
  const std::vector<PassReport> reports = run_passes(graph, list, {});
  if (c.after == nullptr) {
    EXPECT_EQ(canonical_text(graph), before);
    EXPECT_EQ(reports[0].changes, 0);
  } else {
    EXPECT_EQ(canonical_text(graph), canonical_text(text_graph(opset, c.after)));
    EXPECT_GT(reports[0].changes, 0);
  }
}

}  // namespace pare

// How a library says how far it is, without printing. The command line hands down one that draws a bar or
// writes lines; the default does nothing.
//
// Called from one thread at a time. Steps do not nest: begin() ... advance() ... end().
#pragma once

#include <cstdint>
#include <string>

namespace pare {

class Progress {
 public:
  virtual ~Progress() = default;
  virtual void begin(const std::string& what, std::int64_t total);  // total 0: not known
  virtual void advance(std::int64_t count);
  virtual void skip(std::int64_t count);  // done before: says nothing about the pace
  virtual void end();                     // also after an error, when a ProgressStep is unwound
};

Progress& no_progress();  // does nothing; the default argument of functions that take one

// begin() and end() as a scope.
class ProgressStep {
 public:
  ProgressStep(Progress& progress, const std::string& what, std::int64_t total) : progress_(progress) {
    progress_.begin(what, total);
  }
  ~ProgressStep() { progress_.end(); }
  ProgressStep(const ProgressStep&) = delete;
  ProgressStep& operator=(const ProgressStep&) = delete;

  void advance(std::int64_t count) { progress_.advance(count); }
  void skip(std::int64_t count) { progress_.skip(count); }

 private:
  Progress& progress_;
};

}  // namespace pare

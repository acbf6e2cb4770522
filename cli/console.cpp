#include "cli/console.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>

#include "engine/base/error.h"

namespace pare {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string duration_text(double seconds) {
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<long>(seconds);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole % 3600 / 60);
}

// "12.6M": weights are counted, too.
std::string count_text(double count) {
  if (count < 1e5) return fmt::format("{:.0f}", count);
  return count < 1e7 ? fmt::format("{:.0f}k", count * 1e-3) : fmt::format("{:.0f}M", count * 1e-6);
}

std::string rate_text(double rate) {
  if (rate < 1e4) return fmt::format("{:.3g}/s", rate);
  return rate < 1e6 ? fmt::format("{:.3g}k/s", rate * 1e-3) : fmt::format("{:.3g}M/s", rate * 1e-6);
}

class Steps : public Progress {
 public:
  void begin(const std::string& what, std::int64_t total) override {
    what_ = what;
    total_ = total;
    done_ = skipped_ = 0;
    start_ = shown_ = Clock::now();
    show(false);
  }
  void advance(std::int64_t count) override {
    done_ += count;
    if (since(shown_) < interval()) return;
    shown_ = Clock::now();
    show(false);
  }
  void skip(std::int64_t count) override {
    skipped_ += count;
    advance(count);
  }
  void end() override { show(true); }

 protected:
  virtual double interval() const = 0;  // seconds between two looks
  virtual void show(bool last) = 0;

  double done() const { return static_cast<double>(done_); }
  double total() const { return static_cast<double>(total_); }
  double rate() const {
    const double seconds = since(start_);
    return seconds > 0 ? static_cast<double>(done_ - skipped_) / seconds : 0;
  }
  // "213/s, 2 s left"; nothing before there is something to say.
  std::string pace() const {
    if (rate() == 0) return "";
    std::string text = rate_text(rate());
    if (total_ > done_) text += ", " + duration_text(static_cast<double>(total_ - done_) / rate()) + " left";
    return text;
  }

  std::string what_;
  std::int64_t total_ = 0, done_ = 0;
  std::int64_t skipped_ = 0;  // of done_
  Clock::time_point start_, shown_;
};

class Bar final : public Steps {
 public:
  double interval() const override { return 0.1; }
  void show(bool last) override {
    if (last) {  // the line is wiped: the next step or the result takes its place
      std::fputs("\r\033[K", stderr);
      return;
    }
    constexpr int kCells = 24;
    std::string bar;
    if (total_ > 0) {
      const auto full = static_cast<int>(kCells * std::min(done_, total_) / total_);
      bar = "[" + std::string(static_cast<std::size_t>(full), '#') +
            std::string(static_cast<std::size_t>(kCells - full), '.') + "] " +
            fmt::format("{}/{} ", count_text(done()), count_text(total()));
    }
    std::fputs(fmt::format("\r\033[K{} {}{}", what_, bar, pace()).c_str(), stderr);
    std::fflush(stderr);
  }
};

class Lines final : public Steps {
 public:
  // A step of hours does not fill a log.
  double interval() const override { return since(start_) < 60 ? 10 : 60; }
  void show(bool last) override {
    if (done_ == 0 || (!last && total_ > 0 && done_ >= total_)) return;
    if (last) {
      if (since(start_) < 5) return;  // not worth a line
      if (std::uncaught_exceptions() > 0) {
        std::fputs(
            fmt::format("{}: stopped at {} of {}\n", what_, count_text(done()), count_text(total())).c_str(),
            stderr);
        return;
      }
      std::fputs(fmt::format("{}: {} in {:.1f} s ({})\n", what_, count_text(done()), since(start_),
                             rate_text(rate()))
                     .c_str(),
                 stderr);
      return;
    }
    std::fputs(
        fmt::format("{}: {} of {}, {}\n", what_, count_text(done()), count_text(total()), pace()).c_str(),
        stderr);
  }
};

}  // namespace

std::unique_ptr<Progress> make_console_progress(bool quiet) {
  if (quiet) return std::make_unique<Progress>();
  if (::isatty(STDERR_FILENO) != 0) return std::make_unique<Bar>();
  return std::make_unique<Lines>();
}

}  // namespace pare

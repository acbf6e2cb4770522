// Mistakes that are collected, so that a recipe's are all said at once.
#pragma once

#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace pare {

// The first mistake, and with it those that were found at the same time.
class ManyErrors : public Error {
 public:
  ManyErrors(const Error& first, std::vector<Error> others) : Error(first), others_(std::move(others)) {}
  const std::vector<Error>& others() const noexcept { return others_; }

 private:
  std::vector<Error> others_;
};

class Mistakes {
 public:
  void add(Error error) { errors_.push_back(std::move(error)); }
  bool any() const { return !errors_.empty(); }

  // Runs `body`; an Error that leaves it is one more mistake.
  template <typename Body>
  void collect(Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      errors_.push_back(error);
    }
  }

  // Throws nothing when there are none, else ManyErrors (one Error when there is only one): in the order of
  // the text (by the line and column that ends `where`), a usage error first, since its code is the exit
  // code.
  void raise();

 private:
  std::vector<Error> errors_;
};

}  // namespace pare

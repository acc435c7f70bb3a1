// Passes what a rank writes on, line by line.
#pragma once
#include <set>
#include <string>
#include <string_view>

namespace shardcomm::tools {

// Shows a line of the form "shardcomm: error: …" once, however many ranks print it.
class RepeatedErrors {
 public:
  bool is_repeated(std::string_view line);

 private:
  std::set<std::string, std::less<>> seen_;
};

// Owns the reading end of a pipe. Lines keep whole: several relays may write to one descriptor.
class LineRelay {
 public:
  LineRelay(int pipe, int to, std::string prefix, RepeatedErrors* repeated);
  LineRelay(LineRelay&& other) noexcept;
  LineRelay& operator=(LineRelay&&) = delete;
  ~LineRelay();

  int pipe() const noexcept { return pipe_; }  // -1 after its end
  void pass_on();                              // reads once, when poll() says that there is something or the end
  void finish();                               // what is left of a line without its newline, too

 private:
  void write_line(std::string_view line);

  int pipe_;
  int to_;
  std::string prefix_;
  RepeatedErrors* repeated_;  // null: every line is shown
  std::string partial_;
};

}  // namespace shardcomm::tools

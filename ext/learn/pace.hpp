// Deciding at run time whether several threads are faster than one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace bpeflow {

// Threads that work on the same list wait for the slowest of them. If another process occupies its core, that takes
// until the kernel schedules the thread again: milliseconds for microseconds of work. (On two cores with one of them
// busy, learning took up to 4.7 s instead of 0.2 s.) The load of other processes is unknown, so both variants are
// timed, the faster one is used, and the other one is tried from time to time. The choice does not affect the result.
class Pace {
  public:
    // Return whether to use several threads for the next list.
    bool several() {
        trying_ = until_trial_ == 0;
        if (!trying_) until_trial_--;
        return several_better_ != trying_;
    }

    // Record the time that a list with this many entries took.
    void took(bool several, double seconds, std::size_t entries) {
        const double each = seconds / static_cast<double>(entries);
        double &known = each_[several];
        known = trying_ ? each : 0.75 * known + 0.25 * each;
        const bool several_better = each_[true] < each_[false];
        if (several_better != several_better_)
            interval_ = shortest;
        else if (trying_)
            interval_ = std::min(interval_ * 2, longest);
        if (trying_ || several_better != several_better_) until_trial_ = interval_;
        several_better_ = several_better;
    }

  private:
    // Lists between two trials. With fewer, trials that cost milliseconds add up. With more, a long training run is
    // slow to notice that the cores are free again.
    static constexpr unsigned shortest = 16, longest = 1024;

    double each_[2] = {20e-9, 10e-9}; // seconds per entry, with one thread and with several: initial guesses
    bool several_better_ = true, trying_ = false;
    unsigned interval_ = shortest, until_trial_ = shortest;
};

// The paces of lists with 1, 2 or 3, 4 to 7 entries, and so on. An entry of a short list takes longer than one of a long
// list, so with one pace for all, the variant that happened to get the long lists would seem to be the faster one.
class Paces {
  public:
    Pace &of(std::uint64_t entries) { return paces_[static_cast<std::size_t>(63 - __builtin_clzll(entries))]; }

  private:
    std::array<Pace, 64> paces_;
};

} // namespace bpeflow

cmake_minimum_required(VERSION 3.25)
# Fails when a program for x86-64 has instructions of later processors than x86-64-v2 (AVX, BMI and the like) outside of
# functions that have avx2, or the level of a clone, in their names: those are chosen at run time.
# Run as: cmake -DFILES=<a,b> -DOBJDUMP=<objdump> -P cmake/check_baseline.cmake
find_program(AWK NAMES awk)
if(NOT OBJDUMP OR NOT AWK)
  message(STATUS "baseline: skipped: needs objdump and awk")
  return()
endif()

# Not among them: tzcnt and prefetchw, which older processors take for bsf and for nothing, and xgetbv, with which libgcc
# asks a processor that has it what it has.
set(later "v[a-z0-9]+|andn|bextr|bls(i|r|msk)|bzhi|lzcnt|movbe|mulx|pdep|pext|rorx|sarx|shlx|shrx")
string(APPEND later "|aes[a-z0-9]+|pclmul[a-z]*|sha(1|256)[a-z0-9]+|ad[co]x|rdrand|rdseed|xsave[a-z0-9]*|k[a-z]+[bwdq]")
set(find_later "
  /^[0-9a-f]+ <.*>:$/ { name = substr($0, index($0, \"<\")) }
  $1 ~ /:$/ && $2 ~ /^(${later})$/ {
    if (name ~ /[Aa]vx2|arch_x86.64.v3/) ++chosen; else if (!(name in other)) other[name] = $2
  }
  END { for (name in other) print name, other[name]; print chosen + 0 }")
string(REPLACE "," ";" FILES "${FILES}")
foreach(file IN LISTS FILES)
  execute_process(COMMAND ${OBJDUMP} -d -C --no-show-raw-insn ${file} COMMAND ${AWK} "${find_later}"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE RESULTS_VARIABLE codes)
  if(NOT codes STREQUAL "0;0")
    message(FATAL_ERROR "baseline: objdump and awk on ${file}: ${codes}")
  elseif(NOT found MATCHES "^[1-9][0-9]*$")  # a search that finds none at all does not work
    message(SEND_ERROR "baseline: ${file} has later instructions than x86-64-v2 in:\n${found}")
  else()
    message(STATUS "baseline: ${file}: ${found} later instructions, all chosen at run time")
  endif()
endforeach()

// simt_thunks.h -- how Python calls a kernel: with the parameter list of the kernel's own type, which is also described.
//
// Included before the learner's text, as all headers are, so that no macro of that text changes them. Only the names
// that begin with simt_ or SIMT_ are used behind it (thunks.py).
#pragma once

#if defined(_WIN32)
#define SIMT_EXPORT extern "C" __attribute__((__dllexport__))
#else
#define SIMT_EXPORT extern "C" __attribute__((__visibility__("default")))
#endif
// What leads to a kernel has no hooks of its own in checked mode. In native mode the kernel becomes a part of it, and the
// watchdog must see every basic block of that.
#if SIMT_CHECKED
#define SIMT_WAY_IN SIMT_UNHOOKED
#else
#define SIMT_WAY_IN
#endif
#define SIMT_THUNK SIMT_EXPORT SIMT_WAY_IN

// A variable in device memory.
struct simt_global { const char* name; void* address; unsigned long long size; int constant; };

namespace simt_thunks {
struct simt_parameter { const char* name; unsigned size, alignment; char pointer, constant, kind; };
template <class T> constexpr const char* name_of() { return __PRETTY_FUNCTION__; }
template <class T> struct kind_of { static constexpr char value = __is_enum(T) ? 'i' : 's'; };
template <class T> struct kind_of<T*> { static constexpr char value = 'p'; };
#define SIMT_KIND(T, letter) template <> struct kind_of<T> { static constexpr char value = letter; };
SIMT_KIND(void, 'v') SIMT_KIND(bool, 'b') SIMT_KIND(float, 'f') SIMT_KIND(double, 'f')
SIMT_KIND(char, char(-1) < 0 ? 'i' : 'u') SIMT_KIND(signed char, 'i') SIMT_KIND(short, 'i') SIMT_KIND(int, 'i')
SIMT_KIND(long, 'i') SIMT_KIND(long long, 'i') SIMT_KIND(unsigned char, 'u') SIMT_KIND(unsigned short, 'u')
SIMT_KIND(unsigned, 'u') SIMT_KIND(unsigned long, 'u') SIMT_KIND(unsigned long long, 'u')
#undef SIMT_KIND
template <class T> struct plain { using type = T; static constexpr char constant = 0; };
template <class T> struct plain<const T> { using type = T; static constexpr char constant = 1; };
template <class T> struct plain<volatile T> { using type = T; static constexpr char constant = 0; };
template <class T> struct plain<const volatile T> { using type = T; static constexpr char constant = 1; };
template <class T, unsigned N = sizeof(T)> constexpr unsigned size_of(int) { return N; }
template <class T> constexpr unsigned size_of(long) { return 0; }
template <class T, unsigned N = alignof(T)> constexpr unsigned alignment_of(int) { return N; }
template <class T> constexpr unsigned alignment_of(long) { return 1; }
template <class T> struct measure {
    static constexpr unsigned size = size_of<T>(0), alignment = alignment_of<T>(0);
};
template <> struct measure<void> { static constexpr unsigned size = 0, alignment = 1; };
template <class R, class... P> struct measure<R(P...)> { static constexpr unsigned size = 0, alignment = 1; };
template <class T> struct describe {
    static constexpr simt_parameter value = {name_of<T>(), measure<T>::size, measure<T>::alignment,
                                             0, 0, kind_of<T>::value};
};
template <class T> struct describe<T*> {
    using pointee = typename plain<T>::type;
    static constexpr simt_parameter value = {name_of<pointee>(), measure<pointee>::size, measure<pointee>::alignment,
                                             1, plain<T>::constant, kind_of<pointee>::value};
};
template <class T> struct describe<T&> { static_assert(sizeof(T) == 0, "a kernel's parameter cannot be a reference"); };
template <class... P> struct table {
    static constexpr simt_parameter rows[] = {describe<P>::value..., {nullptr, 0, 0, 0, 0, 0}};
};
template <class... P> constexpr const simt_parameter* simt_rows_of(void (*)(P...)) { return table<P...>::rows; }
template <unsigned N, unsigned... I> struct caller : caller<N - 1, N - 1, I...> {};
template <unsigned... I> struct caller<0, I...> {
    template <class... P> SIMT_WAY_IN static void call(void (*kernel)(P...), void** arguments) {
        kernel(*(P*)arguments[I]...);
    }
};
template <class... P> SIMT_WAY_IN void simt_call(void (*kernel)(P...), void** arguments) {
    caller<sizeof...(P)>::call(kernel, arguments);
}
}  // namespace simt_thunks

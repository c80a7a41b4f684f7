// A page opened from a file may start no worker: the theme's search then runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inner = frame.contentWindow
      const page = frame.contentDocument
      page.open()
      page.write("<!doctype html><title>search</title>")
      page.close()
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = page.createElement("script")
      script.src = url
      this.loaded = new Promise((resolve) => script.addEventListener("load", resolve))
      page.head.append(script)
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}

// The theme searches in a worker, and browsers start no workers for pages of the file system. This runs its script in a
// hidden frame.
if (location.protocol === 'file:') {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement('iframe');
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      const page = this.inner.document;
      page.open();  // Firefox would otherwise replace the page when it has loaded
      page.write('<!doctype html>');
      page.close();
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent('message', {data}));
      const script = page.createElement('script');
      script.src = url;
      script.onload = () => this.send_waiting();
      page.documentElement.appendChild(script);
    }

    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data);
      } else {
        this.inner.dispatchEvent(new MessageEvent('message', {data}));
      }
    }

    send_waiting() {
      const messages = this.waiting;
      this.waiting = null;
      messages.forEach((data) => this.postMessage(data));
    }
  };
}
